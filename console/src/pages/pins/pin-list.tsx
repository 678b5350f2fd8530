/** All servers: whether they are pinned, and their tools to review. */
import { Badge, Group, Switch, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";
import { pinsQuery, serversQuery } from "@/api/records";
import { type Column, DataTable } from "@/parts/data-table";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure, Skeletons } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { type Row, rowsOf } from "./pin-draft";

const waitingOf = (row: Row) => row.pin?.waiting.length ?? 0;
const approvedOf = (row: Row) => (row.pin === null ? -1 : Object.keys(row.pin.tools).length);

const COLUMNS: readonly Column<Row>[] = [
  {
    key: "server",
    title: "Server",
    show: (row) => <Untrusted text={row.serverId} mono />,
    sortBy: (row) => row.serverId,
  },
  {
    key: "approved",
    title: "Approved",
    show: (row) => (row.pin === null ? "not pinned" : `${approvedOf(row)} tools`),
    sortBy: approvedOf,
  },
  { key: "waiting", title: "To review", show: (row) => <Waiting row={row} />, sortBy: waitingOf },
];

function Waiting({ row }: { readonly row: Row }) {
  const count = waitingOf(row);
  if (count === 0) return "–";
  return (
    <Group gap="xs">
      <Badge color="orange" variant="light">
        {count}
      </Badge>
      <Untrusted text={row.pin?.waiting.slice(0, 5).join(", ") ?? ""} mono />
      {count > 5 ? "…" : null}
    </Group>
  );
}

export function PinList() {
  const servers = useQuery(serversQuery);
  const pins = useQuery(pinsQuery);
  const [query, setQuery] = useSearchParams();
  const wanted = query.get("q") ?? "";
  const isPinnedOnly = query.has("pinned");
  const ask = (text: string, isPinned: boolean) =>
    setQuery(
      { ...(text === "" ? {} : { q: text }), ...(isPinned ? { pinned: "1" } : {}) },
      { replace: true },
    );
  const failed = [servers, pins].find((one) => one.data === undefined && one.isError);
  return (
    <>
      <PageHead
        title="Pins"
        about="A pinned server offers only approved definitions. Changed and new tools are quarantined until approved."
      />
      <Group mb="sm" align="flex-end">
        <TextInput
          label="Filter"
          placeholder="A server"
          value={wanted}
          onChange={(event) => ask(event.currentTarget.value, isPinnedOnly)}
          w={280}
        />
        <Switch
          label="Pinned only"
          checked={isPinnedOnly}
          onChange={(event) => ask(wanted, event.currentTarget.checked)}
          mb={8}
        />
      </Group>
      {failed ? <Failure error={failed.error} onRetry={() => void failed.refetch()} /> : null}
      {servers.data && pins.data ? (
        <DataTable
          label="Pins"
          rows={rowsOf(
            servers.data.map((one) => one.server_id),
            pins.data,
          ).filter((row) => row.serverId.includes(wanted) && (!isPinnedOnly || row.pin !== null))}
          columns={COLUMNS}
          keyOf={(row) => row.serverId}
          hrefOf={(row) => encodeURIComponent(row.serverId)}
          sort={{ key: "waiting", isDown: true }}
          empty={
            servers.data.length === 0 ? (
              <Empty title="No servers yet">
                To pin a server, first <Link to="/servers">register it</Link>.
              </Empty>
            ) : (
              <Empty title="No servers match" />
            )
          }
        />
      ) : failed ? null : (
        <Skeletons what="Loading the pins" />
      )}
    </>
  );
}
