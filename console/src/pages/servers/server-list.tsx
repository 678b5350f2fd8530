/** All servers: state with its cause, tools offered, usage, and the next step of each. */
import { Button } from "@mantine/core";
import { IconFileImport, IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link, useSearchParams } from "react-router";
import { useMay } from "@/api/me";
import { serversQuery } from "@/api/records";
import { DataTable } from "@/parts/data-table";
import { ClearFilters } from "@/parts/filter-row";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { RANGES, TimeRangePicker, useTimeRange } from "@/parts/time-range";
import { FILTERS, Filters } from "./filters";
import { filterRows, readFilter, toRows } from "./listing";
import { callsQuery } from "./queries";
import { columnsFor } from "./server-columns";
import type { Server } from "./server-form";

export function ServerList() {
  const servers = useQuery(serversQuery);
  return (
    <>
      <PageHead title="Servers" about="The MCP servers behind this gateway.">
        {servers.data?.length === 0 ? null : <Buttons />}
      </PageHead>
      <Loaded query={servers} what="Loading the servers">
        {(all) => (all.length === 0 ? <NoServers /> : <Table servers={all} />)}
      </Loaded>
    </>
  );
}

function Buttons() {
  if (!useMay("admin")) return null;
  return (
    <>
      <Button
        component={Link}
        to="/servers/-/import"
        variant="default"
        leftSection={<IconFileImport size={16} />}
      >
        Import
      </Button>
      <Button component={Link} to="/servers/-/new" leftSection={<IconPlus size={16} />}>
        New server
      </Button>
    </>
  );
}

function NoServers() {
  return (
    <Empty title="No servers yet" firstStep={<Buttons />}>
      Paste a command, a URL or an mcp.json as a new server, or import the configuration of Claude, Cursor, VS
      Code or another client.
    </Empty>
  );
}

function Table({ servers }: { readonly servers: readonly Server[] }) {
  const [query] = useSearchParams();
  const time = useTimeRange();
  const calls = useQuery(callsQuery(time)).data;
  const rows = useMemo(() => toRows(servers, calls), [servers, calls]);
  const columns = useMemo(() => columnsFor(RANGES[time.range].title), [time.range]);
  const filter = readFilter(query);
  return (
    <>
      <Filters servers={servers}>
        <TimeRangePicker time={time} />
      </Filters>
      <DataTable
        label="Servers"
        rows={filterRows(rows, filter)}
        columns={columns}
        keyOf={(row) => row.server.server_id}
        hrefOf={(row) => `/servers/${row.server.server_id}`}
        sort={{ key: "id" }}
        empty={
          <Empty title="No servers match" firstStep={<ClearFilters names={FILTERS} />}>
            Clear a filter.
          </Empty>
        }
      />
    </>
  );
}
