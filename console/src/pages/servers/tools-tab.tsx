/** What a server lists: its names at the endpoints, and whether it is allowed. */
import { Alert, Badge, Button, Drawer, Group, Select, Stack, Switch, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { useMay } from "@/api/me";
import { tasksQuery } from "@/api/records";
import { Copy } from "@/parts/copy";
import { type Column, DataTable } from "@/parts/data-table";
import { Prose } from "@/parts/prose";
import { REASON_WORDS } from "@/parts/reasons";
import { Empty, Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { ChooseTools } from "./choose-tools";
import { filterOffers, type Offer, type Preview, toOffers } from "./offers";
import { previewQuery } from "./queries";
import type { Server } from "./server-form";

const COLUMNS: readonly Column<Offer>[] = [
  {
    key: "tool",
    title: "Tool",
    show: (one) => <Untrusted text={one.tool} mono />,
    sortBy: (one) => one.tool,
  },
  {
    key: "allowed",
    title: "Allowed",
    show: (one) => <Verdict offer={one} />,
    sortBy: (one) => Number(one.allowed),
  },
  {
    key: "name",
    title: "Name in MCP",
    show: (one) => <Untrusted text={one.name} mono />,
    sortBy: (one) => one.name,
    isMinor: true,
  },
  {
    key: "chat",
    title: "Name in chat",
    show: (one) => <Untrusted text={one.chatName} mono />,
    sortBy: (one) => one.chatName,
    isMinor: true,
  },
  {
    key: "tokens",
    title: "Tokens",
    show: (one) => (one.tokens === null ? "–" : count(one.tokens)),
    sortBy: (one) => one.tokens ?? -1,
    align: "right",
    width: 90,
  },
];

function Verdict({ offer }: { readonly offer: Offer }) {
  if (offer.reason === null)
    return (
      <Badge color="green" variant="light" tt="none">
        yes
      </Badge>
    );
  return (
    <Text size="sm" component="div">
      <Badge color={offer.reason === "quarantined" ? "orange" : "gray"} variant="light" tt="none" mr={6}>
        no
      </Badge>
      {REASON_WORDS[offer.reason].title}
    </Text>
  );
}

const STATES: Readonly<Record<Preview["state"], string | null>> = {
  ready: null,
  pending: "The server has not listed its tools yet.",
  env_missing: "An environment variable or secret that the server references is missing.",
  list_timeout: "The server did not list its tools in time.",
  list_failed: "The server failed to start or to list its tools.",
};

interface ToolsTabProps {
  readonly server: Server;
  readonly etag: string;
}

/** Whether nothing is offered because nothing was chosen yet. */
function isUnchosen({ offer }: Server): boolean {
  return offer !== null && offer.offered === 0 && offer.listed > 0 && offer.reason === "deny_all";
}

export function ToolsTab({ server, etag }: ToolsTabProps) {
  const isAdmin = useMay("admin");
  const [isChoosing, setChoosing] = useState(isUnchosen(server) && isAdmin);
  const preview = useQuery(previewQuery(server.server_id, ""));
  if (isChoosing)
    return (
      <Loaded query={preview} what="Loading the tools">
        {(found) => (
          <ChooseTools server={server} etag={etag} preview={found} onClose={() => setChoosing(false)} />
        )}
      </Loaded>
    );
  return <OffersTab server={server} onChoose={isAdmin ? () => setChoosing(true) : undefined} />;
}

interface OffersTabProps {
  readonly server: Server;
  readonly onChoose: (() => void) | undefined;
}

function OffersTab({ server, onChoose }: OffersTabProps) {
  const [query, setQuery] = useSearchParams();
  const task = query.get("task") ?? "";
  const preview = useQuery(previewQuery(server.server_id, task));
  const set = (name: string, value: string) =>
    setQuery(
      (old) => {
        if (value === "") old.delete(name);
        else old.set(name, value);
        return old;
      },
      { replace: true },
    );
  return (
    <Stack gap="sm">
      <Group gap="xs" role="search" aria-label="Filter">
        <TextInput
          aria-label="Find"
          placeholder="Find a tool"
          value={query.get("q") ?? ""}
          onChange={(event) => set("q", event.currentTarget.value)}
          style={{ flex: "1 1 200px" }}
        />
        <TaskSelect task={task} onChange={(chosen) => set("task", chosen)} />
        <Switch
          label="Excluded only"
          checked={query.has("out")}
          onChange={(event) => set("out", event.currentTarget.checked ? "1" : "")}
        />
        {onChoose ? <Button onClick={onChoose}>Choose tools</Button> : null}
      </Group>
      <Loaded query={preview} what="Loading the tools">
        {(found) => (
          <Offers server={server} preview={found} text={query.get("q") ?? ""} isOut={query.has("out")} />
        )}
      </Loaded>
    </Stack>
  );
}

function TaskSelect({
  task,
  onChange,
}: {
  readonly task: string;
  readonly onChange: (task: string) => void;
}) {
  const tasks = useQuery(tasksQuery).data ?? [];
  return (
    <Select
      aria-label="Task"
      placeholder="Without a task"
      data={tasks.map((one) => ({ value: one.task_id, label: visibleText(one.task_id) }))}
      value={task || null}
      onChange={(chosen) => onChange(chosen ?? "")}
      searchable
      clearable
      limit={50}
      w={220}
    />
  );
}

interface OffersProps {
  readonly server: Server;
  readonly preview: Preview;
  readonly text: string;
  readonly isOut: boolean;
}

function Offers({ server, preview, text, isOut }: OffersProps) {
  const [open, setOpen] = useState<Offer | null>(null);
  const all = useMemo(() => toOffers(preview), [preview]);
  const rows = filterOffers(all, text, isOut);
  const passing = preview.tools.filter((one) => one.allowed).length;
  const others = preview.others.filter((one) => one.allowed).length;
  const state = STATES[preview.state];
  return (
    <>
      {state === null ? null : (
        <Alert color="orange" title={state}>
          {preview.is_stale ? "These tools were listed earlier." : "Test the connection, or read its stderr."}
        </Alert>
      )}
      {preview.tools.length > 0 && (server.allowed_tools ?? []).length === 0 ? (
        <Alert color="yellow" title="No tools allowed">
          The server's record allows no tools, so none is offered.
        </Alert>
      ) : null}
      <Text size="sm" c="dimmed">
        {count(passing)} of {count(preview.tools.length)} tools offered, about {count(preview.tokens)} tokens.
        {preview.others.length > 0
          ? ` ${count(others)} of ${count(preview.others.length)} prompts and resources.`
          : ""}
      </Text>
      <DataTable
        label="Tools it lists"
        rows={rows}
        columns={COLUMNS}
        keyOf={(one) => one.tool}
        onOpen={setOpen}
        sort={{ key: "tool" }}
        empty={
          <Empty title={all.length === 0 ? "No tools listed" : "No tools match"}>
            {all.length === 0 ? "Tools appear once the server is connected." : "Clear a filter."}
          </Empty>
        }
      />
      <Drawer opened={open !== null} onClose={() => setOpen(null)} title="Tool" position="right" size="lg">
        {open ? <OfferDetail offer={open} serverId={server.server_id} /> : null}
      </Drawer>
    </>
  );
}

function OfferDetail({ offer, serverId }: { readonly offer: Offer; readonly serverId: string }) {
  const names: [string, string][] = [
    ["Name at the server", offer.tool],
    ["Name in MCP", offer.name],
    ["Name in chat", offer.chatName],
    ["Definition digest", offer.digest],
  ];
  return (
    <Stack>
      {names
        .filter(([, text]) => text !== "")
        .map(([title, text]) => (
          <div key={title}>
            <Text size="xs" c="dimmed">
              {title}
            </Text>
            <Group gap={4} wrap="nowrap">
              <Untrusted text={text} mono />
              <Copy text={text} label={`Copy: ${title}`} />
            </Group>
          </div>
        ))}
      <div>
        <Verdict offer={offer} />
        <Text size="sm" mt={4} component="div">
          By <Prose text={offer.rule} /> of the {offer.layer}.
        </Text>
        {offer.reason ? <Text size="sm">{REASON_WORDS[offer.reason].todo}</Text> : null}
        {offer.reason === "quarantined" ? <Link to={`/pins/${serverId}`}>Review the change</Link> : null}
      </div>
      {offer.description ? <Untrusted text={offer.description} /> : <Text c="dimmed">No description.</Text>}
    </Stack>
  );
}
