/** Calls over a time range: how many, their outcomes, the slowest tools, and denials. */
import { Anchor, Grid, Group, SegmentedControl, Stack, Table, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { BarChart } from "@/parts/bar-chart";
import { ruleInWords } from "@/parts/reasons";
import { Loaded } from "@/parts/states";
import { count, duration } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { askedSpan, SPANS, type Span, totals } from "./numbers";
import { Panel } from "./panel";

const LOOK_MS = 10_000;
const SERIES = [
  { title: "Succeeded", colour: "var(--tone-calm)" },
  { title: "Failed", colour: "var(--tone-bad)" },
  { title: "Denied", colour: "var(--tone-warn)" },
];

function useActivity(span: Span) {
  const { ms, buckets } = SPANS[span];
  return useQuery({
    queryKey: ["activity", span],
    queryFn: ({ signal }) =>
      take(
        api.GET("/admin/api/activity", { params: { query: { since: Date.now() - ms, buckets } }, signal }),
      ),
    refetchInterval: LOOK_MS,
    placeholderData: keepPreviousData,
  });
}

export function Calls() {
  const [query, setQuery] = useSearchParams();
  const span = askedSpan(query.get("span"));
  const activity = useActivity(span);
  const choose = (value: string) => setQuery({ span: value }, { replace: true });
  const spans = Object.entries(SPANS).map(([value, { title }]) => ({ value, label: title }));
  return (
    <Panel
      title="Calls"
      aside={
        <SegmentedControl size="xs" aria-label="Time range" value={span} onChange={choose} data={spans} />
      }
    >
      <Loaded query={activity} what="Loading the call counts">
        {(found) => (
          <Stack>
            <Totals activity={found} />
            <BarChart
              label="Calls over time"
              series={SERIES}
              bars={found.buckets.map((one) => ({
                at_ms: one.at_ms,
                counts: [one.calls - one.errors, one.errors, one.denials],
              }))}
            />
            <Grid>
              <Grid.Col span={{ base: 12, lg: 6 }}>
                <Slowest tools={found.tools.slice(0, 8)} />
              </Grid.Col>
              <Grid.Col span={{ base: 12, lg: 6 }}>
                <Denials denials={found.denials.slice(0, 8)} />
              </Grid.Col>
            </Grid>
          </Stack>
        )}
      </Loaded>
    </Panel>
  );
}

function Totals({ activity }: { readonly activity: Shapes["ActivityResponse"] }) {
  const { calls, errors, denials } = totals(activity);
  return (
    <Group gap="lg">
      <Anchor component={Link} to="/activity?type=call">
        {count(calls)} calls
      </Anchor>
      <Anchor component={Link} to="/activity?type=call&outcome=error">
        {count(errors)} failed
      </Anchor>
      <Anchor component={Link} to="/activity?type=call&outcome=denied">
        {count(denials)} denied
      </Anchor>
    </Group>
  );
}

function Slowest({ tools }: { readonly tools: readonly Shapes["ToolActivity"][] }) {
  return (
    <Table aria-label="Slowest tools">
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Slowest tools</Table.Th>
          <Table.Th ta="right">Calls</Table.Th>
          <Table.Th ta="right">p95</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {tools.map((one) => (
          <Table.Tr key={`${one.server_id}/${one.tool}`}>
            <Table.Td>
              <Anchor
                component={Link}
                to={`/activity?${new URLSearchParams({ server: one.server_id, tool: one.tool })}`}
              >
                <Untrusted text={`${one.server_id}.${one.tool}`} mono />
              </Anchor>
            </Table.Td>
            <Table.Td ta="right">{count(one.calls)}</Table.Td>
            <Table.Td ta="right">{duration(one.p95_ms)}</Table.Td>
          </Table.Tr>
        ))}
        <Nothing isEmpty={tools.length === 0} words="No calls." />
      </Table.Tbody>
    </Table>
  );
}

function Denials({ denials }: { readonly denials: readonly Shapes["DenialCount"][] }) {
  return (
    <Table aria-label="Denials by reason">
      <Table.Thead>
        <Table.Tr>
          <Table.Th>Denials by reason</Table.Th>
          <Table.Th ta="right">Count</Table.Th>
        </Table.Tr>
      </Table.Thead>
      <Table.Tbody>
        {denials.map((one) => (
          <Table.Tr key={`${one.code} ${one.layer} ${one.rule}`}>
            <Table.Td>
              <Anchor
                component={Link}
                to={`/activity?${new URLSearchParams({ outcome: "denied", code: one.code })}`}
              >
                <Untrusted text={one.code} mono />
              </Anchor>
              <Text size="sm" c="dimmed" component="div">
                {one.layer ? `${one.layer}: ` : ""}
                <Untrusted text={ruleInWords(one.rule) || one.rule} />
              </Text>
            </Table.Td>
            <Table.Td ta="right">{count(one.count)}</Table.Td>
          </Table.Tr>
        ))}
        <Nothing isEmpty={denials.length === 0} words="No denials." />
      </Table.Tbody>
    </Table>
  );
}

function Nothing({ isEmpty, words }: { readonly isEmpty: boolean; readonly words: string }) {
  if (!isEmpty) return null;
  return (
    <Table.Tr>
      <Table.Td colSpan={3}>
        <Text size="sm" c="dimmed">
          {words}
        </Text>
      </Table.Td>
    </Table.Tr>
  );
}
