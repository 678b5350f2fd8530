/** One task or key: its unused tools, and a policy without them. */
import { Button, Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { useMay } from "@/api/me";
import { type Column, DataTable } from "@/parts/data-table";
import { knownSince, LastUsed } from "@/parts/last-used";
import { PageHead } from "@/parts/page-head";
import { Warnings } from "@/parts/plan-panel";
import { Empty, Loaded } from "@/parts/states";
import { count, moment } from "@/parts/time";
import { type Range, TimeRangePicker, useTimeRange } from "@/parts/time-range";
import { Untrusted } from "@/parts/untrusted";
import { type Holder, SPANS, summaryOf, USUAL } from "./words";

type Unused = Shapes["UnusedTool"];

export function HolderPage() {
  const { kind, id = "" } = useParams();
  const time = useTimeRange(USUAL, SPANS);
  const isTask = kind === "task";
  const found = useQuery({
    queryKey: ["derived", "unused", "one", kind, id, time.range],
    queryFn: ({ signal }) => {
      const query = { since: Date.now() - time.ms, ...(isTask ? { task: id } : { key: id }) };
      return take(api.GET("/admin/api/unused", { params: { query }, signal }));
    },
  });
  return (
    <>
      <PageHead
        title={id}
        about={
          isTask
            ? "Tools that the task grants but no caller uses"
            : "Tools that the key allows but no caller uses"
        }
      >
        {found.data ? <Ways kind={isTask ? "task" : "key"} id={id} range={time.range} /> : null}
      </PageHead>
      <Stack gap="sm">
        <Group>
          <TimeRangePicker time={time} />
        </Group>
        <Loaded query={found} what="Reading the audit log">
          {({ holders: [holder], since_ms, audit_begins_ms, warnings }) =>
            holder ? (
              <Grants holder={holder} sinceMs={since_ms} beginsMs={audit_begins_ms} warnings={warnings} />
            ) : null
          }
        </Loaded>
      </Stack>
    </>
  );
}

function Ways({
  kind,
  id,
  range,
}: {
  readonly kind: Holder["kind"];
  readonly id: string;
  readonly range: Range;
}) {
  const place = `/${kind}s/${encodeURIComponent(id)}`;
  return (
    <>
      <Button variant="default" component={Link} to={place}>
        Open the {kind}
      </Button>
      {kind === "task" ? (
        <Button component={Link} to={`${place}?tab=learn&range=${range}`}>
          Policy without them
        </Button>
      ) : null}
    </>
  );
}

interface GrantsProps {
  readonly holder: Holder;
  readonly sinceMs: number;
  readonly beginsMs: number | null;
  readonly warnings: readonly string[];
}

function Grants({ holder, sinceMs, beginsMs, warnings }: GrantsProps) {
  const mayLook = useMay("admin") || holder.kind === "task";
  const lens = (one: Unused) => {
    const query = new URLSearchParams({ [holder.kind]: holder.id, why: nameOf(one) });
    return `/scope?${query}`;
  };
  return (
    <>
      <Group gap="xs">
        <Text>{summaryOf(holder)}</Text>
        <Text c="dimmed" size="sm">
          {count(holder.calls)} {holder.calls === 1 ? "call" : "calls"} since{" "}
          {moment(knownSince(sinceMs, beginsMs))}
        </Text>
      </Group>
      <Warnings warnings={[...warnings]} />
      <DataTable
        label="Unused tools"
        rows={holder.tools}
        columns={columnsOf(beginsMs)}
        keyOf={nameOf}
        hrefOf={mayLook ? lens : undefined}
        sort={{ key: "name" }}
        empty={<Empty title="No unused tools">Every granted tool was used in this time range.</Empty>}
      />
    </>
  );
}

function nameOf(one: Unused): string {
  return `${one.server_id}.${one.tool}`;
}

function columnsOf(beginsMs: number | null): readonly Column<Unused>[] {
  return [
    { key: "name", title: "Tool", sortBy: nameOf, show: (one) => <Untrusted text={nameOf(one)} mono /> },
    {
      key: "last",
      title: "Last used",
      width: 190,
      sortBy: (one) => one.last_used_ms ?? 0,
      show: (one) => <LastUsed ms={one.last_used_ms} beginsMs={beginsMs} />,
    },
    {
      key: "tokens",
      title: "Tokens",
      align: "right",
      width: 90,
      sortBy: (one) => one.tokens,
      show: (one) => count(one.tokens),
    },
  ];
}
