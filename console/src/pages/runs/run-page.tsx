/** One run: state, live log and result. */
import { Alert, Button, Card, Group, Stack, Table, Text, Title } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { useParams } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { CodeBlock, Copy } from "@/parts/copy";
import { PageHead } from "@/parts/page-head";
import { Prose } from "@/parts/prose";
import { Failure, Loaded } from "@/parts/states";
import { ago, bytes, count, duration, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { runName } from "./names";
import { endOf, isOver, type Line, type Run } from "./run-log";
import { RunBadge, tookOf } from "./task-runs";
import { useRun } from "./use-run";

export function RunPage() {
  const { taskId = "", invocationId = "" } = useParams();
  const followed = useRun(taskId, invocationId);
  const params = { path: { task_id: taskId, invocation_id: invocationId } };
  const query = useQuery({
    // Asked again when its state changes.
    queryKey: ["run", taskId, invocationId, followed.state],
    queryFn: ({ signal }) =>
      take(api.GET("/api/v1/tasks/{task_id}/invocations/{invocation_id}", { params, signal })),
    placeholderData: (before) => before,
  });
  return (
    <>
      <PageHead
        title={query.data ? runName(query.data) : "Run"}
        above={[{ title: taskId, path: `/runs/${encodeURIComponent(taskId)}` }]}
        about={
          <Group gap={4} component="span" display="inline-flex">
            <Text span size="xs" className="mono">
              {visibleText(invocationId)}
            </Text>
            <Copy text={invocationId} label="Copy the id" />
          </Group>
        }
      >
        {query.data && !isOver(followed.state ?? query.data.state) ? <Cancel run={query.data} /> : null}
      </PageHead>
      <Loaded query={query} what="Loading the run">
        {(found) => {
          const run = followed.ended ?? found;
          return (
            <Stack>
              <Facts run={run} />
              {followed.broken === null ? null : (
                <Alert color="yellow">
                  <Prose text={followed.broken} />
                </Alert>
              )}
              {run.ending === null ? null : <Ending ending={run.ending} />}
              <Log lines={followed.lines} isOver={isOver(run.state)} />
            </Stack>
          );
        }}
      </Loaded>
    </>
  );
}

function Cancel({ run }: { readonly run: Run }) {
  const queries = useQueryClient();
  const params = { path: { task_id: run.task_id, invocation_id: run.invocation_id } };
  const cancel = useMutation({
    mutationFn: () =>
      take(api.POST("/api/v1/tasks/{task_id}/invocations/{invocation_id}/cancel", { params, body: {} })),
    onSettled: () => queries.invalidateQueries({ queryKey: ["run"] }),
  });
  return (
    <Stack gap="xs" align="flex-end">
      <Button
        color="red"
        variant="light"
        onClick={() => cancel.mutate()}
        loading={cancel.isPending}
        disabled={run.is_cancel_asked}
      >
        {run.is_cancel_asked ? "Cancelling" : "Cancel run"}
      </Button>
      {cancel.isError ? <Failure error={cancel.error} /> : null}
    </Stack>
  );
}

function Facts({ run }: { readonly run: Run }) {
  return (
    <Card withBorder padding="md">
      <Group gap="xl" align="flex-start">
        <Fact name="State">
          <RunBadge state={run.state} />
        </Fact>
        <Fact name="Result">{endOf(run)}</Fact>
        <Fact name="Duration">{tookOf(run)}</Fact>
        <Fact name="Requested">
          <span title={moment(run.created_ms)}>{ago(run.created_ms)}</span>
        </Fact>
        <Fact name="Started by">
          <Untrusted text={run.principal} mono />
        </Fact>
        <Fact name="Attempt">
          {run.attempt} of {run.retries + 1}
        </Fact>
        {run.ending === null ? null : <Usage usage={run.ending.usage} />}
      </Group>
    </Card>
  );
}

function Usage({ usage }: { readonly usage: Shapes["RunUsage"] }) {
  return (
    <>
      <Fact name="Fuel">{count(usage.fuel)}</Fact>
      <Fact name="Memory">{bytes(usage.memory_bytes)}</Fact>
      <Fact name="Tool calls">{count(usage.tool_calls)}</Fact>
      <Fact name="Model requests">{count(usage.model_asks)}</Fact>
    </>
  );
}

function Fact({ name, children }: { readonly name: string; readonly children: ReactNode }) {
  return (
    <Stack gap={0}>
      <Text size="sm" c="dimmed">
        {name}
      </Text>
      <Text component="div">{children}</Text>
    </Stack>
  );
}

function Ending({ ending }: { readonly ending: Shapes["EndingShown"] }) {
  return (
    <>
      {ending.message === "" ? null : (
        <Alert color="red" title="Error">
          <Prose text={ending.message} />
        </Alert>
      )}
      {ending.is_truncated ? (
        <Alert color="yellow">Output truncated: it exceeded the task's limit.</Alert>
      ) : null}
      <Output title="Output" text={ending.stdout} base64={ending.stdout_base64} />
      <Output title="Stderr" text={ending.stderr} base64={ending.stderr_base64} />
      <Calls calls={ending.calls ?? []} />
    </>
  );
}

interface OutputProps {
  readonly title: string;
  readonly text: string | null;
  readonly base64: string | null;
}

function Output({ title, text, base64 }: OutputProps) {
  const shown = text ?? base64 ?? "";
  if (shown === "") return null;
  return (
    <Card withBorder padding="md" component="section" aria-label={title}>
      <Title order={2} size="h4" mb="xs">
        {title}
        {text === null ? " (binary, as base64)" : ""}
      </Title>
      <CodeBlock text={shown} label={title.toLowerCase()} />
    </Card>
  );
}

function Calls({ calls }: { readonly calls: readonly Shapes["InvocationCall"][] }) {
  if (calls.length === 0) return null;
  return (
    <Card withBorder padding="md" component="section" aria-label="Tool calls">
      <Title order={2} size="h4" mb="xs">
        Tool calls
      </Title>
      <Table maw={720}>
        <Table.Tbody>
          {calls.map((one, place) => (
            // biome-ignore lint/suspicious/noArrayIndexKey: calls that were made never move
            <Table.Tr key={place}>
              <Table.Td>
                <Untrusted text={`${one.server_id}.${one.tool}`} mono />
              </Table.Td>
              <Table.Td>{one.code === "" ? "succeeded" : <Untrusted text={one.code} mono />}</Table.Td>
              <Table.Td ta="right">{duration(one.ms)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </Card>
  );
}

const TONES: Readonly<Record<Line["level"], string | undefined>> = {
  trace: "dimmed",
  debug: "dimmed",
  info: undefined,
  warn: "var(--tone-warn)",
  error: "var(--mantine-color-error)",
};

function Log({ lines, isOver }: { readonly lines: readonly Line[]; readonly isOver: boolean }) {
  if (lines.length === 0 && isOver) return null;
  return (
    <Card withBorder padding="md">
      <Title order={2} size="h4" mb="xs">
        Log
      </Title>
      <section role="log" aria-label="Log">
        {lines.map((line) => (
          <Text key={line.seq} size="sm" c={TONES[line.level]} component="div" className="mono">
            <Text span c="dimmed" inherit>
              {new Date(line.at_ms).toLocaleTimeString("en-GB")} {line.stream}{" "}
            </Text>
            <Untrusted text={line.text} />
          </Text>
        ))}
        {isOver ? null : <Text c="dimmed">New lines appear as they are written.</Text>}
      </section>
    </Card>
  );
}
