/** All servers: whether they are pinned, and their tools to review. */
import { Badge, Button, Group, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { pinsQuery, serversQuery } from "@/api/records";
import { type Column, DataTable } from "@/parts/data-table";
import { ClearFilters, FilterRow, type FilterSelect, useFilters } from "@/parts/filter-row";
import { hasWords } from "@/parts/filter-words";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure, Skeletons } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { type Row, rowsOf } from "./pin-draft";

const waitingOf = (row: Row) => row.pin?.waiting.length ?? 0;
const approvedOf = (row: Row) => (row.pin === null ? -1 : Object.keys(row.pin.tools).length);

const COLUMNS: readonly Column<Row>[] = [
  {
    key: "server",
    title: "Server",
    show: (row) => (
      <Text size="sm" fw={600} component="div">
        <Untrusted text={row.serverId} mono />
      </Text>
    ),
    sortBy: (row) => row.serverId,
  },
  {
    key: "approved",
    title: "Approved",
    show: (row) => (row.pin === null ? "not pinned" : some(approvedOf(row), "tool")),
    sortBy: approvedOf,
  },
  { key: "waiting", title: "To review", show: (row) => <Waiting row={row} />, sortBy: waitingOf },
];

function some(many: number, what: string): string {
  return `${count(many)} ${what}${many === 1 ? "" : "s"}`;
}

const STATE: FilterSelect = {
  name: "state",
  label: "State",
  any: "Any state",
  data: [
    { value: "review", label: "Tools to review" },
    { value: "pinned", label: "Pinned" },
    { value: "unpinned", label: "Not pinned" },
  ],
};

function isIn(row: Row, state: string): boolean {
  if (state === "review") return waitingOf(row) > 0;
  if (state === "pinned") return row.pin !== null;
  return state !== "unpinned" || row.pin === null;
}

function Waiting({ row }: { readonly row: Row }) {
  const many = waitingOf(row);
  if (many === 0) return "–";
  return (
    <Group gap="xs">
      <Badge color="orange" variant="light">
        {many}
      </Badge>
      <Untrusted text={row.pin?.waiting.slice(0, 5).join(", ") ?? ""} mono />
      {many > 5 ? "…" : null}
    </Group>
  );
}

export function PinList() {
  const servers = useQuery(serversQuery);
  const pins = useQuery(pinsQuery);
  const { of, text } = useFilters();
  const failed = [servers, pins].find((one) => one.data === undefined && one.isError);
  return (
    <>
      <PageHead
        title="Pins"
        about="A pinned server offers only approved definitions. Changed and new tools are quarantined until approved."
      />
      <FilterRow find="Find a server or a tool to review" selects={[STATE]} />
      {failed ? <Failure error={failed.error} onRetry={() => void failed.refetch()} /> : null}
      {servers.data && pins.data ? (
        <DataTable
          label="Pins"
          rows={rowsOf(
            servers.data.map((one) => one.server_id),
            pins.data,
          ).filter(
            (row) => hasWords(text, row.serverId, ...(row.pin?.waiting ?? [])) && isIn(row, of(STATE.name)),
          )}
          columns={COLUMNS}
          keyOf={(row) => row.serverId}
          hrefOf={(row) => encodeURIComponent(row.serverId)}
          sort={{ key: "waiting", isDown: true }}
          empty={
            servers.data.length === 0 ? (
              <Empty
                title="No servers yet"
                firstStep={
                  <Button component={Link} to="/servers">
                    Open the servers
                  </Button>
                }
              >
                A pin approves the tools of a registered server.
              </Empty>
            ) : (
              <Empty title="No servers match" firstStep={<ClearFilters names={[STATE.name]} />} />
            )
          }
        />
      ) : failed ? null : (
        <Skeletons what="Loading the pins" />
      )}
    </>
  );
}
