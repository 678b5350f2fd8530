/** A connection test of the record as typed, separate from the connection in use. */
import { Alert, Badge, Button, Card, Group, Loader, Stack, Text } from "@mantine/core";
import { IconPlugConnected } from "@tabler/icons-react";
import { useEffect, useState } from "react";
import { CodeBlock } from "@/parts/copy";
import { Prose } from "@/parts/prose";
import { Failure } from "@/parts/states";
import { duration } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import type { Change } from "@/parts/use-plan";
import { visibleText } from "@/parts/visible";
import { runnerOf } from "./proposed-id";
import type { Body } from "./server-form";
import { sentence } from "./server-status";
import { type TrialResponse, useTrial } from "./use-trial";

interface TrialProps {
  /** The server to test; null: the input is not a valid record. */
  readonly change: Change | null;
  /** Called when the user starts a test: missing fields are shown from then on. */
  readonly onWanted: () => void;
}

export function Trial({ change, onWanted }: TrialProps) {
  const trial = useTrial();
  return (
    <Card withBorder>
      <Stack gap="sm">
        <Group justify="space-between">
          <Text size="sm" c="dimmed" maw={560}>
            Connects once with the values above, and saves nothing. Existing connections are not affected.
          </Text>
          <Button
            variant="default"
            leftSection={<IconPlugConnected size={16} />}
            disabled={trial.isPending}
            onClick={() => {
              onWanted();
              if (change !== null) trial.mutate(change);
            }}
          >
            Test connection
          </Button>
        </Group>
        <TrialStatus trial={trial} body={trial.variables?.body ?? null} />
      </Stack>
    </Card>
  );
}

/** What a test does now, or its result. */
export function TrialStatus({
  trial,
  body,
}: {
  readonly trial: ReturnType<typeof useTrial>;
  readonly body: Body | Change["body"];
}) {
  return (
    <>
      <div role="status" aria-label="Result of the test">
        {trial.isPending ? <TrialProgress body={body} onCancel={trial.cancel} /> : null}
        {trial.data && !trial.isPending ? <TrialResult answer={trial.data} /> : null}
      </div>
      {trial.isError && !trial.isPending ? <Failure error={trial.error} /> : null}
    </>
  );
}

/** Less than this is no wait. */
const SOON_S = 2;

/** What a test of `body` does after this many seconds, as far as one can tell from outside. */
function phaseOf(body: Body | Change["body"], seconds: number): string {
  const { stdio, http } = (body ?? {}) as Partial<Body>;
  if (http) return "Connecting to the URL";
  const runner = stdio ? runnerOf([stdio.command, ...(stdio.args ?? [])]) : "";
  if (runner === "" || seconds < SOON_S) return "Starting the program";
  const does = /^(?:docker|podman|nerdctl)$/.test(runner) ? "pulls the image" : "downloads packages";
  return `Starting: ${runner} ${does} first, which may take minutes`;
}

export function TrialProgress({
  body,
  onCancel,
}: {
  readonly body: Body | Change["body"];
  readonly onCancel: () => void;
}) {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setSeconds((old) => old + 1), 1_000);
    return () => clearInterval(timer);
  }, []);
  return (
    <Group gap="sm" wrap="nowrap">
      <Loader size="sm" aria-hidden />
      <Text size="sm" style={{ flex: 1 }}>
        {phaseOf(body, seconds)}. <span aria-hidden>{seconds} s</span>
      </Text>
      <Button size="xs" variant="default" onClick={onCancel}>
        Cancel the test
      </Button>
    </Group>
  );
}

/** At most this many names are shown; the rest are counted. */
const MOST = 60;

export function TrialResult({ answer }: { readonly answer: TrialResponse }) {
  return (
    <Alert
      color={answer.ok ? "green" : "red"}
      title={answer.ok ? "Connection succeeded" : "Connection failed"}
    >
      <Stack gap="xs">
        {answer.error ? (
          <div>
            <Prose text={sentence(answer.error)} />
          </div>
        ) : null}
        {answer.hint ? (
          <Text size="sm" component="div">
            <Prose text={sentence(answer.hint)} />
          </Text>
        ) : null}
        <TrialTimes answer={answer} />
        {answer.ok ? <Found tools={answer.tools} /> : null}
        <Rejected answer={answer} />
        {answer.stderr_tail ? <CodeBlock text={answer.stderr_tail} label="stderr" /> : null}
      </Stack>
    </Alert>
  );
}

export function TrialTimes({ answer }: { readonly answer: TrialResponse }) {
  const times = [
    answer.connect_ms === null ? null : `connected in ${duration(answer.connect_ms)}`,
    answer.list_ms === null ? null : `listed in ${duration(answer.list_ms)}`,
    answer.version === null ? null : visibleText(`MCP ${answer.version}`),
  ].filter((one) => one !== null);
  return times.length > 0 ? (
    <Text size="sm" component="span">
      {times.join(", ")}
    </Text>
  ) : null;
}

export function Rejected({ answer }: { readonly answer: TrialResponse }) {
  return Object.entries(answer.quarantined)
    .slice(0, MOST)
    .map(([tool, why]) => (
      <Text size="sm" key={tool} component="div">
        <Untrusted text={tool} mono /> is rejected: <Prose text={why} />
      </Text>
    ));
}

function Found({ tools }: { readonly tools: readonly string[] }) {
  return (
    <Group gap={4}>
      <Text size="sm">{tools.length === 1 ? "1 tool:" : `${tools.length} tools:`}</Text>
      {tools.slice(0, MOST).map((one) => (
        <Badge key={one} variant="default" tt="none">
          <Untrusted text={one} mono />
        </Badge>
      ))}
      {tools.length > MOST ? <Text size="sm">and {tools.length - MOST} more</Text> : null}
    </Group>
  );
}
