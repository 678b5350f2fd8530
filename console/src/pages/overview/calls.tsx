/** Calls over a time range: how many, their outcomes, the slowest tools, and denials. */
import { Anchor, Grid, Group, Stack, Table, Text } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { BarChart } from "@/parts/bar-chart";
import { ruleInWords } from "@/parts/reasons";
import { Loaded } from "@/parts/states";
import { count, duration } from "@/parts/time";
import { type TimeRange, TimeRangePicker, useTimeRange } from "@/parts/time-range";
import { Untrusted } from "@/parts/untrusted";
import { totals } from "./numbers";
import { Panel } from "./panel";

const LOOK_MS = 10_000;
const SERIES = [
  { title: "Succeeded", colour: "var(--series-1)" },
  { title: "Failed", colour: "var(--series-2)" },
  { title: "Denied", colour: "var(--series-3)" },
  { title: "Pending approval", colour: "var(--series-4)" },
];

type Activity = Shapes["Activity"];

function useActivity({ range, ms, buckets }: TimeRange) {
  return useQuery({
    queryKey: ["activity", range],
    queryFn: ({ signal }) =>
      take(
        api.GET("/admin/api/activity", { params: { query: { since: Date.now() - ms, buckets } }, signal }),
      ),
    refetchInterval: LOOK_MS,
    placeholderData: keepPreviousData,
  });
}

/** The events of the audit log that a number counts, and no others. */
function eventsOf(
  span: Pick<Activity, "since_ms" | "until_ms">,
  only: Readonly<Record<string, string>>,
): string {
  const since = String(span.since_ms);
  const until = String(span.until_ms);
  return `/activity?${new URLSearchParams({ type: "call", ...only, since, until })}`;
}

export function Calls() {
  const time = useTimeRange();
  const activity = useActivity(time);
  return (
    <Panel title="Calls" aside={<TimeRangePicker time={time} />}>
      <Loaded query={activity} what="Loading the call counts">
        {(found) => (
          <Stack>
            <Totals activity={found} />
            <BarChart
              label="Calls over time"
              series={SERIES}
              stepMs={found.bucket_ms}
              bars={found.buckets.map((one) => ({
                at_ms: one.at_ms,
                counts: [one.calls - one.errors, one.errors, one.denials, one.pending],
              }))}
              hrefOf={(bar) => eventsOf({ since_ms: bar.at_ms, until_ms: bar.at_ms + found.bucket_ms }, {})}
            />
            <Grid>
              <Grid.Col span={{ base: 12, lg: 6 }}>
                <Slowest activity={found} tools={found.tools.slice(0, 8)} />
              </Grid.Col>
              <Grid.Col span={{ base: 12, lg: 6 }}>
                <Denials activity={found} denials={found.denials.slice(0, 8)} />
              </Grid.Col>
            </Grid>
          </Stack>
        )}
      </Loaded>
    </Panel>
  );
}

function Totals({ activity }: { readonly activity: Activity }) {
  const { calls, errors, denials, pending } = totals(activity);
  return (
    <Group gap="lg">
      <Anchor component={Link} to={eventsOf(activity, { outcome: "admitted" })}>
        {count(calls)} calls
      </Anchor>
      <Anchor component={Link} to={eventsOf(activity, { outcome: "failed" })}>
        {count(errors)} failed
      </Anchor>
      <Anchor component={Link} to={eventsOf(activity, { outcome: "rejected" })}>
        {count(denials)} denied
      </Anchor>
      <Anchor component={Link} to={eventsOf(activity, { outcome: "pending" })}>
        {count(pending)} pending approval
      </Anchor>
    </Group>
  );
}

interface SlowestProps {
  readonly activity: Activity;
  readonly tools: readonly Shapes["ToolActivity"][];
}

function Slowest({ activity, tools }: SlowestProps) {
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
                to={eventsOf(activity, { outcome: "admitted", server: one.server_id, tool: one.tool })}
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

interface DenialsProps {
  readonly activity: Activity;
  readonly denials: readonly Shapes["DenialCount"][];
}

function Denials({ activity, denials }: DenialsProps) {
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
              <Anchor component={Link} to={eventsOf(activity, { outcome: "rejected", code: one.code })}>
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
