/** Integrations: the servers that the caller switches on and off for itself, within its key's ceiling. */
import { Anchor, Group, SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { type QueryClient, queryOptions, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { allPages } from "@/api/all-pages";
import { api, type Shapes, take } from "@/api/client";
import { type Column, DataTable } from "@/parts/data-table";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure, Loaded } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { afterReset, type Integration, type Integrations, matching, STATES, type State } from "./switches";

const KEY = ["integrations"];

const integrationsQuery = queryOptions({
  queryKey: KEY,
  queryFn: async ({ signal }): Promise<Integrations> => {
    const pages = await allPages((cursor) =>
      take(api.GET("/api/v1/me/integrations", { params: { query: { limit: 1000, cursor } }, signal })),
    );
    return { default: pages[0]?.default ?? "on", all: pages.flatMap((page) => page.integrations) };
  },
});

export default function Page() {
  const integrations = useQuery(integrationsQuery);
  return (
    <>
      <PageHead
        title="Integrations"
        about="Switch servers on and off for yourself. It applies to every client that uses your key. It never exceeds your key."
      />
      <Loaded query={integrations} what="Loading your integrations">
        {(found) => <List found={found} />}
      </Loaded>
    </>
  );
}

function List({ found }: { readonly found: Integrations }) {
  const [wanted, setWanted] = useState("");
  return (
    <Stack gap="sm">
      <TextInput
        label="Filter"
        placeholder="A server"
        value={wanted}
        onChange={(event) => setWanted(event.currentTarget.value)}
        w={280}
      />
      <DataTable
        label="Integrations"
        rows={matching(found.all, wanted)}
        columns={COLUMNS}
        keyOf={(row) => row.server_id}
        empty={
          found.all.length === 0 ? (
            <Empty title="Your key reaches no server">Ask an admin.</Empty>
          ) : (
            <Empty title="No servers match">Clear the filter.</Empty>
          )
        }
      />
      <Text size="sm" c="dimmed">
        Read-only tools are those whose definition sets readOnlyHint. Prompts and resources are included.
      </Text>
    </Stack>
  );
}

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
  queries.setQueryData<Integrations>(KEY, (known) =>
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
      const known = queries.getQueryData<Integrations>(KEY);
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
