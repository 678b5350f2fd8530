/** The status of a server here and on each node, and its connection. */
import { Alert, Button, Card, Group, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { IconRefresh } from "@tabler/icons-react";
import { useMutation, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { useMay } from "@/api/me";
import { CodeBlock } from "@/parts/copy";
import { StateBadge } from "@/parts/server-state";
import { Failure } from "@/parts/states";
import { ago, count, duration, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { useRefresh } from "@/parts/use-writing";
import { LoginState } from "./login-card";
import { Nodes } from "./nodes-table";
import { dayQuery } from "./queries";
import type { Server } from "./server-form";
import { shellLine, shownValue } from "./shell-line";

export function OverviewTab({ server }: { readonly server: Server }) {
  const { health } = server;
  const isWrong = health?.state === "down" || health?.state === "degraded";
  return (
    <Stack>
      {health && isWrong && health.last_error ? (
        <Alert color={health.state === "down" ? "red" : "orange"} title="Last error">
          <Untrusted text={health.last_error} />
          {health.hint ? (
            <Text size="sm" mt="xs">
              <Untrusted text={health.hint} />
            </Text>
          ) : null}
        </Alert>
      ) : null}
      {health?.state === "starting" && health.hint ? (
        <Alert color="yellow" title="Starting">
          <Untrusted text={health.hint} />
        </Alert>
      ) : null}
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        <HealthCard server={server} />
        <ReachCard server={server} />
      </SimpleGrid>
      {server.nodes.length > 0 ? <Nodes nodes={server.nodes} /> : null}
      {health?.stderr_tail ? (
        <Section title="Last lines of stderr">
          <CodeBlock text={health.stderr_tail} label="stderr" />
        </Section>
      ) : null}
    </Stack>
  );
}

function Section({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  return (
    <Card withBorder>
      <Title order={2} size="h5" mb="sm">
        {title}
      </Title>
      {children}
    </Card>
  );
}

function HealthCard({ server }: { readonly server: Server }) {
  const mayRefresh = useMay("admin");
  const refresh = useMutation({
    mutationFn: () =>
      take(
        api.POST("/admin/api/mcp/servers/{server_id}/refresh", {
          params: { path: { server_id: server.server_id } },
          body: {},
        }),
      ),
    onSettled: useRefresh("server"),
  });
  return (
    <Card withBorder>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h5">
          Status on this node
        </Title>
        {mayRefresh ? (
          <Button
            size="xs"
            variant="default"
            leftSection={<IconRefresh size={14} />}
            loading={refresh.isPending}
            onClick={() => refresh.mutate()}
          >
            Refresh the tool list
          </Button>
        ) : null}
      </Group>
      {refresh.isError ? <Failure error={refresh.error} /> : null}
      {server.health ? (
        <HealthFacts server={server} health={server.health} />
      ) : (
        <Text c="dimmed">This process has no status for this server.</Text>
      )}
    </Card>
  );
}

function HealthFacts({
  server,
  health,
}: {
  readonly server: Server;
  readonly health: Shapes["ServerHealth"];
}) {
  const day = useQuery(dayQuery).data?.find((one) => one.server_id === server.server_id);
  const facts: [string, ReactNode][] = [
    ["State", <StateBadge key="state" state={health.state} />],
    ["Since", health.since_ms ? `${ago(health.since_ms)}, ${moment(health.since_ms)}` : "–"],
    ["Tools", <ToolCount key="tools" server={server} health={health} />],
    ["Calls", `${count(health.calls)}, ${health.in_flight} in flight, ${health.queued} queued`],
    ["Last 24 h", day ? `${count(day.calls)} calls, ${count(day.errors)} failed` : "–"],
    ["p50, p95", day ? `${speed(day.p50_ms)}, ${speed(day.p95_ms)}` : "–"],
    ["Restarts", count(health.restarts)],
    ["Tools listed", listedAt(health)],
    ["Last listing took", health.last_list_ms === null ? "–" : duration(health.last_list_ms)],
    ["Protocol", health.version ? <Untrusted key="mcp" text={`MCP ${health.version}`} /> : "–"],
    ["Process", health.pid === null ? "–" : String(health.pid)],
    ["Sessions", server.sharing === "per_session" ? `${health.session_links} open` : "shared"],
  ];
  return <Facts facts={facts} />;
}

/** When the server itself last listed its tools. A disconnected server may offer others meanwhile. */
function listedAt(health: Shapes["ServerHealth"]): string {
  if (!health.verified_ms) return health.tools ? "never; from its package manifest" : "–";
  const at = `${ago(health.verified_ms)}, ${moment(health.verified_ms)}`;
  return health.state === "connected" ? at : `${at}; not verified since`;
}

function speed(ms: number | null): string {
  return ms === null ? "–" : duration(ms);
}

function ToolCount({ server, health }: { readonly server: Server; readonly health: Shapes["ServerHealth"] }) {
  if (health.quarantined === 0) return count(health.tools);
  return (
    <>
      {count(health.tools)},{" "}
      <Link to={`/pins/${server.server_id}`}>{count(health.quarantined)} quarantined</Link>
    </>
  );
}

function Facts({ facts }: { readonly facts: readonly [string, ReactNode][] }) {
  return (
    <Table variant="vertical" layout="fixed" withRowBorders={false} verticalSpacing={4}>
      <Table.Tbody>
        {facts.map(([name, value]) => (
          <Table.Tr key={name}>
            <Table.Th w={140}>{name}</Table.Th>
            <Table.Td>{value}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

function ReachCard({ server }: { readonly server: Server }) {
  const { stdio, http } = server;
  const headers = Object.entries(http?.headers ?? {});
  return (
    <Section title="Connection">
      <Stack gap="sm">
        {stdio ? <CodeBlock text={shellLine(stdio)} label="the command" /> : null}
        {http ? <CodeBlock text={http.url} label="the URL" /> : null}
        {headers.length > 0 ? (
          <CodeBlock
            text={headers.map(([name, value]) => `${name}: ${shownValue(name, value)}`).join("\n")}
            label="the headers"
          />
        ) : null}
        {http?.auth_ref ? (
          <Text size="sm">
            Bearer token from secret <Untrusted text={http.auth_ref} mono />.
          </Text>
        ) : null}
        {http?.oauth?.grant === "authorization_code" ? <LoginState server={server} /> : null}
        {server.package ? (
          <Text size="sm">
            From its package, version <Untrusted text={server.package.version} mono />.
          </Text>
        ) : null}
        <Text size="sm" c="dimmed">
          {server.updated_at_ms ? `Changed ${ago(server.updated_at_ms)}, ` : ""}revision {server.revision}.
        </Text>
      </Stack>
    </Section>
  );
}
