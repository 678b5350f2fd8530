/** My connections: what the caller reaches, the settings of its clients, and the servers that it switches on and off. */
import { Alert, Anchor, Card, Grid, Group, SegmentedControl, Stack, Text, Title } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { type QueryClient, queryOptions, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";
import { allPages } from "@/api/all-pages";
import { api, type Shapes, take } from "@/api/client";
import { useMe } from "@/api/me";
import { ConnectPanel } from "@/parts/connect-panel";
import { type Column, DataTable } from "@/parts/data-table";
import { ClearFilters, FilterRow, useFilters } from "@/parts/filter-row";
import { PageHead } from "@/parts/page-head";
import { Prose } from "@/parts/prose";
import { Empty, Failure, Loaded } from "@/parts/states";
import { TaskChoice } from "@/parts/task-choice";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { OwnLogin } from "./own-login";
import {
  afterReset,
  firstTask,
  INTEGRATIONS_KEY,
  type Integration,
  type Integrations,
  matching,
  STATES,
  type State,
} from "./switches";

const integrationsQuery = queryOptions({
  queryKey: INTEGRATIONS_KEY,
  queryFn: async ({ signal }): Promise<Integrations> => {
    const pages = await allPages((cursor) =>
      take(api.GET("/api/v1/me/integrations", { params: { query: { limit: 1000, cursor } }, signal })),
    );
    return { default: pages[0]?.default ?? "on", all: pages.flatMap((page) => page.integrations) };
  },
});

export default function Page() {
  return (
    <>
      <PageHead title="My connections" about="What you reach, how to connect a client, and your servers." />
      <Stack gap="lg">
        <Reach />
        <Servers />
      </Stack>
    </>
  );
}

/** A caller that is bound to tasks has nothing without one. */
function Reach() {
  const me = useMe();
  const [params, setParams] = useSearchParams();
  const task = firstTask(params.get("task"), me);
  const choose = (next: string) => setParams({ task: next }, { replace: true });
  const scope = useQuery({
    queryKey: ["derived", "scope", "mine", task],
    queryFn: ({ signal }) =>
      take(api.GET("/api/v1/mcp/scope", { params: { query: task === "" ? {} : { task } }, signal })),
    retry: false,
  });
  return (
    <Grid gap="lg">
      <Grid.Col span={{ base: 12, lg: 5 }}>
        <Card withBorder component="section" aria-label="What you reach">
          <Stack gap="sm">
            <Title order={2} size="h4">
              What you reach
            </Title>
            <TaskChoice value={task} onChange={choose} about="Its policy applies to your calls." />
            <Loaded query={scope} what="Loading your scope">
              {(found) => <Size found={found} task={task} />}
            </Loaded>
          </Stack>
        </Card>
      </Grid.Col>
      <Grid.Col span={{ base: 12, lg: 7 }}>
        <Card withBorder component="section" aria-label="Connect a client">
          <Stack gap="sm">
            <Title order={2} size="h4">
              Connect a client
            </Title>
            <ConnectPanel task={task === "" ? undefined : task} />
          </Stack>
        </Card>
      </Grid.Col>
    </Grid>
  );
}

function Size({ found, task }: { readonly found: Shapes["ScopeSeen"]; readonly task: string }) {
  const lens = task === "" ? "/scope" : `/scope?${new URLSearchParams({ task })}`;
  return (
    <>
      <Text fw={600} c={found.tools.length === 0 ? "var(--tone-bad)" : undefined}>
        {count(found.tools.length)} of {count(found.registered_tools)} tools, about {count(found.tokens)}{" "}
        tokens per list
      </Text>
      {found.refusal === null ? null : (
        <Alert color="red" title={<Prose text={found.refusal.message} />}>
          <Prose text={found.refusal.hint} />
        </Alert>
      )}
      {found.warnings.map((one) => (
        <Alert key={one} color="yellow">
          <Prose text={one} />
        </Alert>
      ))}
      <Text size="sm" component="div">
        <Anchor component={Link} to={lens}>
          {found.tools.length === 0 ? "See why" : "See which tools, and why"}
        </Anchor>
      </Text>
    </>
  );
}

function Servers() {
  const integrations = useQuery(integrationsQuery);
  return (
    <section aria-label="Your servers">
      <Title order={2} size="h4">
        Your servers
      </Title>
      <Text size="sm" c="dimmed" mb="sm">
        Switch servers on and off for yourself: it applies to every client that uses your key, and never
        exceeds your key. Read-only tools are those whose definition says so.
      </Text>
      <Loaded query={integrations} what="Loading your servers">
        {(found) => <List found={found} />}
      </Loaded>
    </section>
  );
}

function List({ found }: { readonly found: Integrations }) {
  const { text } = useFilters();
  if (found.all.length === 0) return <Empty title="Your key reaches no server">Ask an admin.</Empty>;
  return (
    <>
      <FilterRow find="A server" />
      <DataTable
        label="Servers and your settings"
        rows={matching(found.all, text)}
        columns={found.all.some((one) => one.needs_login) ? [...COLUMNS, LOGIN] : COLUMNS}
        keyOf={(row) => row.server_id}
        empty={<Empty title="No servers match" firstStep={<ClearFilters names={[]} />} />}
      />
    </>
  );
}

const LOGIN: Column<Integration> = {
  key: "login",
  title: "Your login",
  show: (row) => <OwnLogin row={row} />,
};

const COLUMNS: readonly Column<Integration>[] = [
  { key: "server", title: "Server", show: (row) => <Server row={row} />, sortBy: (row) => row.server_id },
  {
    key: "reading",
    title: "Read-only tools",
    show: (row) => row.read_only_tools,
    sortBy: (row) => row.read_only_tools,
    align: "right",
    isMinor: true,
  },
  {
    key: "writing",
    title: "Other tools",
    show: (row) => row.writing_tools,
    sortBy: (row) => row.writing_tools,
    align: "right",
    isMinor: true,
  },
  { key: "state", title: "Your setting", show: (row) => <Switches row={row} />, sortBy: (row) => row.state },
];

function Server({ row }: { readonly row: Integration }) {
  return (
    <>
      <Untrusted text={row.server_id} mono />
      {row.display_name === "" ? null : (
        <Text size="xs" c="dimmed" component="div">
          <Untrusted text={row.display_name} />
        </Text>
      )}
    </>
  );
}

/** The response is shown at once: the list may be read before the change is served. */
function store(queries: QueryClient, changed: Integration): void {
  queries.setQueryData<Integrations>(INTEGRATIONS_KEY, (known) =>
    known === undefined
      ? known
      : { ...known, all: known.all.map((one) => (one.server_id === changed.server_id ? changed : one)) },
  );
  void queries.invalidateQueries({ queryKey: ["derived"] });
}

function Switches({ row }: { readonly row: Integration }) {
  const queries = useQueryClient();
  const params = { path: { server_id: row.server_id } };
  const name = visibleText(row.server_id);
  const change = useMutation({
    mutationFn: (state: State) =>
      take(api.PUT("/api/v1/me/integrations/{server_id}", { params, body: { state } })),
    onSuccess: (switched: Shapes["IntegrationSwitched"]) => {
      store(queries, switched);
      notifications.show({ message: `${name}: ${STATES[switched.state].said}.` });
    },
  });
  const reset = useMutation({
    mutationFn: () => take(api.DELETE("/api/v1/me/integrations/{server_id}", { params })),
    onSuccess: () => {
      const known = queries.getQueryData<Integrations>(INTEGRATIONS_KEY);
      if (known !== undefined) store(queries, afterReset(row, known.default));
      notifications.show({ message: `${name}: your key's default.` });
    },
  });
  const isBusy = change.isPending || reset.isPending;
  const error = change.error ?? reset.error;
  return (
    <Stack gap={4} align="flex-start">
      <Group gap="xs">
        <SegmentedControl
          size="xs"
          aria-label={`Your setting for ${name}`}
          data={Object.entries(STATES).map(([value, { label }]) => ({ value, label }))}
          value={isBusy && change.isPending ? change.variables : row.state}
          onChange={(state) => change.mutate(state as State)}
          readOnly={isBusy} // not disabled: that would take the focus away
          transitionDuration={0}
        />
        {row.chosen ? (
          <Anchor component="button" size="xs" disabled={isBusy} onClick={() => reset.mutate()}>
            Reset
          </Anchor>
        ) : (
          <Text size="xs" c="dimmed">
            by default
          </Text>
        )}
      </Group>
      {error === null ? null : <Failure error={error} />}
    </Stack>
  );
}
