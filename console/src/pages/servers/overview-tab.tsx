/** The status of a server here and on each node, and its connection. */
import { Alert, Button, Card, Group, SimpleGrid, Stack, Table, Text, Title } from "@mantine/core";
import { IconRefresh } from "@tabler/icons-react";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type ReactNode, useEffect } from "react";
import { Link, useLocation } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { useMay } from "@/api/me";
import { CodeBlock } from "@/parts/copy";
import { Prose } from "@/parts/prose";
import { Failure } from "@/parts/states";
import { ago, count, duration, moment } from "@/parts/time";
import { useTimeRange } from "@/parts/time-range";
import { Untrusted } from "@/parts/untrusted";
import { useRefresh } from "@/parts/use-writing";
import { LoginState } from "./login-card";
import { Nodes } from "./nodes-table";
import { callsQuery } from "./queries";
import type { Server } from "./server-form";
import { sentence, statusOf } from "./server-status";
import { shellLine, shownValue } from "./shell-line";

/** A link to the output leads there, once it is shown. */
function useOutput(): void {
  const { hash } = useLocation();
  useEffect(() => {
    if (hash === "#output") document.getElementById("output")?.scrollIntoView();
  }, [hash]);
}

export function OverviewTab({ server }: { readonly server: Server }) {
  useOutput();
  const { health } = server;
  return (
    <Stack>
      <Cause server={server} />
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        <HealthCard server={server} />
        <ReachCard server={server} />
      </SimpleGrid>
      {server.nodes.length > 0 ? <Nodes nodes={server.nodes} /> : null}
      {health?.stderr_tail ? (
        <Section title="Output on stderr" id="output">
          <CodeBlock text={health.stderr_tail} label="stderr" />
        </Section>
      ) : null}
    </Stack>
  );
}

/** Why it does not work, and what to do about it. */
function Cause({ server }: { readonly server: Server }) {
  const { key, cause, hint, tone, words } = statusOf(server);
  if (cause === "" || key === "login") return null;
  const title = key === "down" ? "It does not start" : key === "degraded" ? "It failed" : words;
  return (
    <Alert color={tone === "bad" ? "red" : "orange"} title={title}>
      <Prose text={sentence(cause)} />
      {hint ? (
        <Text size="sm" mt="xs" component="div">
          <Prose text={sentence(hint)} />
        </Text>
      ) : null}
    </Alert>
  );
}

function Section({
  title,
  id,
  children,
}: {
  readonly title: string;
  readonly id?: string;
  readonly children: ReactNode;
}) {
  return (
    <Card withBorder id={id}>
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
  const time = useTimeRange();
  const calls = useQuery(callsQuery(time)).data?.find((one) => one.server_id === server.server_id);
  const facts: [string, ReactNode][] = [
    ["Since", health.since_ms ? `${ago(health.since_ms)}, ${moment(health.since_ms)}` : "–"],
    ["Calls", `${count(health.calls)}, ${health.in_flight} in flight, ${health.queued} queued`],
    [`In ${time.words}`, calls ? `${count(calls.calls)} calls, ${count(calls.errors)} failed` : "–"],
    ["p50, p95", calls ? `${speed(calls.p50_ms)}, ${speed(calls.p95_ms)}` : "–"],
    ["Restarts", count(health.restarts)],
    ...quarantineFact(server, health),
    ["Tools listed", listedAt(health)],
    ["Last listing took", health.last_list_ms === null ? "–" : duration(health.last_list_ms)],
    ["Protocol", health.version ? <Untrusted key="mcp" text={`MCP ${health.version}`} /> : "–"],
    ["Process", health.pid === null ? "–" : String(health.pid)],
    ["Sessions", server.sharing === "per_session" ? `${health.session_links} open` : "shared"],
  ];
  return <Facts facts={facts.filter(([, value]) => value !== "–")} />;
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

function quarantineFact(server: Server, { quarantined }: Shapes["ServerHealth"]): [string, ReactNode][] {
  if (quarantined === 0) return [];
  return [
    [
      "Quarantined",
      <Link key="quarantined" to={`/pins/${server.server_id}`}>
        {quarantined === 1 ? "1 definition" : `${count(quarantined)} definitions`}
      </Link>,
    ],
  ];
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
