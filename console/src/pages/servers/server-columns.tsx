/** The columns of lists of servers. */
import { Badge, Group, Text } from "@mantine/core";
import type { Column } from "@/parts/data-table";
import { ago, count, duration, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import type { Row } from "./listing";
import type { Server } from "./server-form";
import { NextAction, OfferLine, StateCell } from "./server-words";

const TRANSPORTS: Readonly<Record<Server["transport"], string>> = {
  stdio: "stdio",
  streamable_http: "HTTP",
  http_sse_legacy: "HTTP+SSE",
};

const NAME: Column<Row> = {
  key: "id",
  title: "Server",
  show: (row) => <Name server={row.server} />,
  sortBy: (row) => row.server.server_id,
  width: "20%",
};
const STATE: Column<Row> = {
  key: "state",
  title: "State",
  show: (row) => <StateCell status={row.status} />,
  sortBy: (row) => row.status.words,
  width: "26%",
};
const OFFERED: Column<Row> = {
  key: "offered",
  title: "Tools",
  show: (row) => <OfferLine offer={row.offer} />,
  sortBy: (row) => row.offer?.offered ?? -1,
  width: "19%",
};
const NEXT: Column<Row> = {
  key: "next",
  title: "Next",
  show: (row) => <NextAction server={row.server} />,
  isMinor: true,
  width: 130,
};

/** What came of an import. */
export const RESULT_COLUMNS: readonly Column<Row>[] = [NAME, STATE, OFFERED, NEXT];

/** The list of servers, with the calls of a time range. */
export function columnsFor(range: string): readonly Column<Row>[] {
  return [
    NAME,
    STATE,
    OFFERED,
    {
      key: "calls",
      title: `Calls, ${range}`,
      show: (row) => <Calls row={row} />,
      sortBy: (row) => row.calls ?? -1,
      align: "right",
      isMinor: true,
      width: 110,
    },
    {
      key: "p95",
      title: "p95",
      show: (row) => (row.p95 === null ? "–" : duration(row.p95)),
      sortBy: (row) => row.p95 ?? -1,
      align: "right",
      isMinor: true,
      width: 80,
    },
    {
      key: "updated",
      title: "Updated",
      show: ({ server }) => (
        <span title={moment(server.updated_at_ms)} style={{ whiteSpace: "nowrap" }}>
          {server.updated_at_ms === 0 ? "–" : ago(server.updated_at_ms)}
        </span>
      ),
      sortBy: (row) => row.server.updated_at_ms,
      isMinor: true,
      width: 120,
    },
    NEXT,
  ];
}

function Name({ server }: { readonly server: Server }) {
  return (
    <>
      <Group gap={6} wrap="wrap">
        <Text fw={600} size="sm" span>
          <Untrusted text={server.server_id} mono />
        </Text>
        {server.display_name && server.display_name !== server.server_id ? (
          <Text size="sm" c="dimmed" span>
            <Untrusted text={server.display_name} />
          </Text>
        ) : null}
        {(server.tags ?? []).slice(0, 4).map((tag) => (
          <Badge key={tag} size="sm" variant="default">
            <Untrusted text={tag} />
          </Badge>
        ))}
      </Group>
      <Text size="xs" c="dimmed">
        {TRANSPORTS[server.transport]}
        {nodesOf(server)}
      </Text>
    </>
  );
}

/** How many nodes have it, and on how many it is unhealthy. The server's page shows each. */
function nodesOf({ nodes }: Server): string {
  const wrong = nodes.filter((one) => one.state === "down" || one.state === "degraded").length;
  if (nodes.length === 0) return "";
  const all = nodes.length === 1 ? "1 node" : `${nodes.length} nodes`;
  return wrong === 0 ? `, ${all}` : `, ${all}, ${wrong} unhealthy`;
}

function Calls({ row }: { readonly row: Row }) {
  if (row.calls === null) return "–";
  return (
    <>
      {count(row.calls)}
      {row.errors ? (
        <Text span size="xs" c="var(--tone-bad)">
          {" "}
          {count(row.errors)} failed
        </Text>
      ) : null}
    </>
  );
}
