/** One event: the request, the decision, the result, and related events. */
import { Anchor, Card, Group, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";
import { api, take } from "@/api/client";
import { CodeBlock } from "@/parts/copy";
import { Fact } from "@/parts/facts";
import { PageHead } from "@/parts/page-head";
import { ruleInWords } from "@/parts/reasons";
import { Loaded } from "@/parts/states";
import { ago, bytes, count, duration, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { EventTable, Result } from "./event-table";
import { waterfallOf } from "./waterfall";
import { WaterfallChart } from "./waterfall-chart";
import { detailsOf, type Event, isPending, lensOn, peopleOf, subjectOf, tookMs } from "./words";

export function Story() {
  const { eventId = "" } = useParams();
  const story = useQuery({
    queryKey: ["audit", "story", eventId],
    queryFn: ({ signal }) =>
      take(api.GET("/admin/api/audit/{event_id}", { params: { path: { event_id: eventId } }, signal })),
  });
  return (
    <Loaded query={story} what="Loading the event">
      {({ event, around }) => (
        <Stack>
          <PageHead title={subjectOf(event)} about={<Summary event={event} />} />
          <People event={event} />
          <Decision event={event} />
          <Timeline event={event} around={around} />
          <Arguments event={event} />
          <Details event={event} />
          {around.length === 0 ? null : (
            <section aria-label="Related events">
              <Title order={2} size="h4" mb="xs">
                Related events
              </Title>
              <EventTable label="Related events" events={around} />
            </section>
          )}
        </Stack>
      )}
    </Loaded>
  );
}

function Summary({ event }: { readonly event: Event }) {
  const ms = tookMs(event);
  return (
    <Group gap="xs">
      <Result event={event} />
      <span title={moment(event.at_ms)}>{ago(event.at_ms)}</span>
      {ms === null ? null : <span>in {duration(ms)}</span>}
      {event.result_bytes === null ? null : <span>{bytes(event.result_bytes)} result</span>}
      {event.result_tokens ? <span>about {count(event.result_tokens)} tokens</span> : null}
    </Group>
  );
}

/** Who asked and who decided. */
function People({ event }: { readonly event: Event }) {
  const people = peopleOf(event);
  if (people.length === 0) return null;
  return (
    <Group gap="lg" component="dl" m={0} aria-label="People">
      {people.map(([part, who]) => (
        <Fact key={part} name={part}>
          <Untrusted text={who} mono />
        </Fact>
      ))}
      {event.reason && event.type === "approval" ? (
        <Fact name="Reason">
          <Untrusted text={event.reason} />
        </Fact>
      ) : null}
    </Group>
  );
}

function Timeline({ event, around }: { readonly event: Event; readonly around: readonly Event[] }) {
  const waterfall = waterfallOf(event, around);
  return waterfall === null ? null : <WaterfallChart waterfall={waterfall} here={event.event_id} />;
}

/** The layer and rule that allowed or denied a call. */
function Decision({ event }: { readonly event: Event }) {
  const lens = lensOn(event);
  if (event.type === "approval" && event.approval_id !== null) {
    return (
      <Anchor component={Link} to={`/approvals/${encodeURIComponent(event.approval_id)}`}>
        Open the approval
      </Anchor>
    );
  }
  if (event.type === "invocation" && event.task_id !== null && event.invocation_id !== null) {
    return (
      <Anchor
        component={Link}
        to={`/runs/${encodeURIComponent(event.task_id)}/${encodeURIComponent(event.invocation_id)}`}
      >
        Open the run
      </Anchor>
    );
  }
  if (lens === null) return null;
  const words = ruleInWords(event.rule ?? "");
  return (
    <Card withBorder component="section" aria-label="Decision">
      <Text component="div">
        {isPending(event) ? "Pending approval, required" : event.outcome === "denied" ? "Denied" : "Allowed"}
        {event.layer ? ` by the ${event.layer}` : ""}
        {words ? `: ${words}` : ""}. {event.rule ? <Untrusted text={event.rule} mono /> : null}
      </Text>
      {event.shadow === null ? null : (
        <Text component="div" c="var(--tone-warn)">
          The task's policy would deny it if it were enforced: <Untrusted text={event.shadow} mono />
        </Text>
      )}
      {event.outcome === "unknown" ? (
        <Text component="div">The gateway stopped during the call: the result is unknown.</Text>
      ) : null}
      <Anchor component={Link} to={lens}>
        Open the current decision in the scope lens
      </Anchor>
    </Card>
  );
}

/** The arguments of the call, redacted. */
function Arguments({ event }: { readonly event: Event }) {
  if (event.arguments === null) return null;
  return <CodeBlock text={JSON.stringify(event.arguments, null, 2)} label="arguments" />;
}

function Details({ event }: { readonly event: Event }) {
  return (
    <Table withTableBorder aria-label="Details">
      <Table.Tbody>
        {detailsOf(event).map(([name, value]) => (
          <Table.Tr key={name}>
            <Table.Th w={180}>{name}</Table.Th>
            <Table.Td>
              <Untrusted text={name === "at_ms" ? `${moment(Number(value))} (${value})` : value} mono />
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}
