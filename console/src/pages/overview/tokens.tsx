/** Tokens of tool lists and call results by day, and what small lists saved. */
import { Anchor, Group, Stack, Table, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { BarChart } from "@/parts/bar-chart";
import { Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { dayOf, tokenBars } from "./numbers";
import { Panel } from "./panel";

const DAYS = 30;
const DAY_MS = 86_400_000;
const LOOK_MS = 60_000;
const MOST = 8;
const SERIES = [
  { title: "Definitions", colour: "var(--series-4)" },
  { title: "Saved", colour: "var(--series-1)" },
];

const tokensQuery = {
  queryKey: ["tokens", DAYS],
  queryFn: ({ signal }: { readonly signal: AbortSignal }) =>
    take(api.GET("/admin/api/tokens", { params: { query: { days: DAYS } }, signal })),
  refetchInterval: LOOK_MS,
  placeholderData: keepPreviousData,
};

export function Tokens() {
  const tokens = useQuery(tokensQuery);
  return (
    <Panel title={`Tokens in ${DAYS} days`} id="tokens">
      <Loaded query={tokens} what="Loading token counts">
        {(found) => (
          <Stack gap="xs">
            <Totals total={found.total} />
            <BarChart
              label="Tokens of definitions by day"
              series={SERIES}
              bars={tokenBars(found)}
              stepMs={DAY_MS}
              when={dayOf}
              isUtc
            />
            <Tasks tasks={found.tasks.slice(0, MOST)} />
          </Stack>
        )}
      </Loaded>
    </Panel>
  );
}

function Totals({ total }: { readonly total: Shapes["TokensShown"] }) {
  return (
    <Group gap="lg">
      <Text>{count(total.definition_tokens)} for definitions</Text>
      <Text>{count(total.saved_tokens)} saved</Text>
      <Text>{count(total.result_tokens)} for results</Text>
    </Group>
  );
}

function Tasks({ tasks }: { readonly tasks: readonly Shapes["TokensOfTask"][] }) {
  if (tasks.length === 0) return <Text size="sm">No tools were listed or called.</Text>;
  return (
    <Table aria-label="Tokens by task">
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Task</Table.Th>
          <Table.Th ta="right" visibleFrom="sm">
            Lists
          </Table.Th>
          <Table.Th ta="right">Definitions</Table.Th>
          <Table.Th ta="right">Saved</Table.Th>
          <Table.Th ta="right">Results</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {tasks.map((one) => (
          <Table.Tr key={one.task_id}>
            <Table.Td>
              {one.task_id === "" ? (
                "none"
              ) : (
                <Anchor component={Link} to={`/tasks/${encodeURIComponent(one.task_id)}`}>
                  <Untrusted text={one.task_id} />
                </Anchor>
              )}
            </Table.Td>
            <Table.Td ta="right" visibleFrom="sm">
              {count(one.lists)}
            </Table.Td>
            <Table.Td ta="right">{count(one.definition_tokens)}</Table.Td>
            <Table.Td ta="right">{count(one.saved_tokens)}</Table.Td>
            <Table.Td ta="right">{count(one.result_tokens)}</Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
