/** All servers: status, tools and usage. */
import { Badge, Button, Group, Text } from "@mantine/core";
import { IconFileImport, IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link, useSearchParams } from "react-router";
import { useMay } from "@/api/me";
import { serversQuery } from "@/api/records";
import { type Column, DataTable } from "@/parts/data-table";
import { PageHead } from "@/parts/page-head";
import { StateBadge } from "@/parts/server-state";
import { Empty, Loaded } from "@/parts/states";
import { ago, count, duration, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { Filters } from "./filters";
import { filterRows, type Row, readFilter, toRows } from "./listing";
import { dayQuery } from "./queries";
import type { Server } from "./server-form";

const TRANSPORTS: Readonly<Record<Server["transport"], string>> = {
  stdio: "stdio",
  streamable_http: "HTTP",
  http_sse_legacy: "HTTP+SSE",
};

const COLUMNS: readonly Column<Row>[] = [
  {
    key: "id",
    title: "Server",
    show: (row) => <Name server={row.server} />,
    sortBy: (row) => row.server.server_id,
    width: "24%",
  },
  {
    key: "state",
    title: "State",
    show: (row) => <StateBadge state={row.state} />,
    sortBy: (row) => row.state ?? "",
    width: 120,
  },
  {
    key: "error",
    title: "Last error",
    show: (row) => (
      <Text size="sm" lineClamp={2} component="div">
        <Untrusted text={row.lastError} />
      </Text>
    ),
    isMinor: true,
  },
  {
    key: "transport",
    title: "Transport",
    show: (row) => TRANSPORTS[row.server.transport],
    sortBy: (row) => row.server.transport,
    isMinor: true,
    width: 110,
  },
  {
    key: "tools",
    title: "Tools",
    show: (row) => count(row.tools),
    sortBy: (row) => row.tools,
    align: "right",
    width: 80,
  },
  {
    key: "calls",
    title: "Calls, 24 h",
    show: (row) => <Calls row={row} />,
    sortBy: (row) => row.calls ?? -1,
    align: "right",
    isMinor: true,
    width: 120,
  },
  {
    key: "p95",
    title: "p95",
    show: (row) => (row.p95 === null ? "–" : duration(row.p95)),
    sortBy: (row) => row.p95 ?? -1,
    align: "right",
    isMinor: true,
    width: 90,
  },
  {
    key: "nodes",
    title: "Nodes",
    show: (row) => <Nodes server={row.server} />,
    sortBy: (row) => row.server.nodes.length,
    isMinor: true,
    width: 100,
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
    width: 130,
  },
];

function Name({ server }: { readonly server: Server }) {
  return (
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
        <Badge key={tag} size="sm" variant="default" tt="none">
          <Untrusted text={tag} />
        </Badge>
      ))}
    </Group>
  );
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

/** How many nodes have it, and on how many it is unhealthy. The server's page shows each. */
function Nodes({ server }: { readonly server: Server }) {
  const wrong = server.nodes.filter((one) => one.state === "down" || one.state === "degraded").length;
  if (server.nodes.length === 0) return "–";
  return wrong === 0 ? server.nodes.length : `${server.nodes.length}, ${wrong} unhealthy`;
}

export function ServerList() {
  const servers = useQuery(serversQuery);
  return (
    <>
      <PageHead title="Servers" about="The MCP servers behind this gateway.">
        <Buttons />
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
    <Empty title="No servers yet">
      Add a server, or import the configuration of Claude, Cursor, VS Code or another client.
    </Empty>
  );
}

function Table({ servers }: { readonly servers: readonly Server[] }) {
  const [query] = useSearchParams();
  const day = useQuery(dayQuery);
  const rows = useMemo(() => toRows(servers, day.data), [servers, day.data]);
  const filter = readFilter(query);
  return (
    <>
      <Filters servers={servers} />
      <DataTable
        label="Servers"
        rows={filterRows(rows, filter)}
        columns={COLUMNS}
        keyOf={(row) => row.server.server_id}
        hrefOf={(row) => `/servers/${row.server.server_id}`}
        sort={{ key: "id" }}
        empty={<Empty title="No servers match">Clear a filter.</Empty>}
      />
    </>
  );
}
