/** The default servers of a task, and those that requests may ask for: two checkboxes per server. */
import { Badge, Card, Checkbox, Group, Stack, Switch, Text, TextInput, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { serversQuery } from "@/api/records";
import { type Column, DataTable } from "@/parts/data-table";
import { HelpLabel } from "@/parts/help";
import { Empty } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { candidates, isAllowed, isDefault, type Pick, type Picks, pick } from "./picks";

interface Row {
  readonly id: string;
  readonly isKnown: boolean;
  readonly about: string;
}

interface ServerPicksProps {
  readonly picks: Picks;
  readonly onChange: (picks: Picks) => void;
}

export function ServerPicks({ picks, onChange }: ServerPicksProps) {
  const servers = useQuery(serversQuery).data;
  const [text, setText] = useState("");
  const rows = useMemo(() => {
    const known = new Map((servers ?? []).map((one) => [one.server_id, one]));
    return candidates(picks, [...known.keys()])
      .map((id) => {
        const about = [known.get(id)?.display_name ?? "", ...(known.get(id)?.tags ?? [])]
          .filter(Boolean)
          .join(" · ");
        return { id, isKnown: servers === undefined || known.has(id), about };
      })
      .filter((row) => `${row.id} ${row.about}`.toLowerCase().includes(text.trim().toLowerCase()));
  }, [servers, picks, text]);
  const turn = (action: Pick) => onChange(pick(picks, action));
  return (
    <Card withBorder padding="md" component="section" aria-label="Servers">
      <Stack gap="sm">
        <Title order={2} size="h4">
          Servers
        </Title>
        <Switches picks={picks} turn={turn} />
        <Group justify="space-between">
          <TextInput
            aria-label="Find a server"
            placeholder="Find a server"
            type="search"
            size="xs"
            value={text}
            onChange={(event) => setText(event.currentTarget.value)}
          />
          <Text size="sm" c="dimmed" role="status">
            {count(picks.default?.length ?? 0)} default,{" "}
            {count((picks.allowed ?? picks.default)?.length ?? 0)} allowed
          </Text>
        </Group>
        <DataTable
          label="Servers to pick"
          rows={rows}
          columns={columnsOf(picks, turn)}
          keyOf={(row) => row.id}
          empty={<Empty title={servers?.length === 0 ? "No servers yet" : "No servers match"} />}
        />
      </Stack>
    </Card>
  );
}

function Switches({ picks, turn }: { readonly picks: Picks; readonly turn: (action: Pick) => void }) {
  return (
    <>
      <Switch
        label={
          <HelpLabel of="task.config.mcp.default_server_ids" label="The task lists its default servers" />
        }
        aria-label="The task lists its default servers"
        description="Off: its profile or tags select them."
        checked={picks.default !== null}
        onChange={(event) => turn({ do: "name-default", isOn: event.currentTarget.checked })}
      />
      <Switch
        label={
          <HelpLabel of="task.config.mcp.allowed_server_ids" label="Requests may select other servers" />
        }
        aria-label="Requests may select other servers"
        description="On: any allowed server. Off: default servers only."
        checked={picks.allowed !== null}
        onChange={(event) => turn({ do: "name-allowed", isOn: event.currentTarget.checked })}
      />
      {picks.default?.length === 0 ? (
        <Text size="sm">No default servers: every request must name its servers.</Text>
      ) : null}
    </>
  );
}

function columnsOf(picks: Picks, turn: (action: Pick) => void): readonly Column<Row>[] {
  return [
    {
      key: "id",
      title: "Server",
      show: (row) => (
        <Group gap="xs" wrap="nowrap">
          <Text size="sm" component="div" lineClamp={1}>
            <Untrusted text={row.id} mono />
          </Text>
          {row.isKnown ? null : (
            <Badge color="orange" variant="light" tt="none">
              not registered
            </Badge>
          )}
          <Text size="xs" c="dimmed" component="div" lineClamp={1} visibleFrom="sm">
            <Untrusted text={row.about} />
          </Text>
        </Group>
      ),
    },
    {
      key: "default",
      title: "Default",
      width: 90,
      show: ({ id }) => (
        <Checkbox
          aria-label={`${visibleText(id)}: default`}
          checked={isDefault(picks, id)}
          onChange={(event) => turn({ do: "default", id, isOn: event.currentTarget.checked })}
        />
      ),
    },
    {
      key: "allowed",
      title: "Allowed",
      width: 90,
      show: ({ id }) => (
        <Checkbox
          aria-label={`${visibleText(id)}: allowed`}
          checked={isAllowed(picks, id)}
          onChange={(event) => turn({ do: "allowed", id, isOn: event.currentTarget.checked })}
        />
      ),
    },
  ];
}
