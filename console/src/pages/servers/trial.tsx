/** A connection test of the record as typed, separate from the connection in use. */
import { Alert, Badge, Button, Card, Group, Stack, Text } from "@mantine/core";
import { IconPlugConnected } from "@tabler/icons-react";
import { useMutation } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, type Shapes, take } from "@/api/client";
import { useMe } from "@/api/me";
import { CodeBlock } from "@/parts/copy";
import { Failure } from "@/parts/states";
import { duration } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import type { Change } from "@/parts/use-plan";
import { visibleText } from "@/parts/visible";
import type { Body } from "./server-form";

type TrialResponse = Shapes["TrialResponse"];

interface TrialProps {
  /** The server to test; null: the input is not a valid record. */
  readonly change: Change | null;
  /** Called when the user starts a test: missing fields are shown from then on. */
  readonly onWanted: () => void;
}

/** A gateway that requires plans starts nothing without one, not even for a test. */
async function tryOut(change: Change, needsPlan: boolean): Promise<TrialResponse> {
  const plan = needsPlan ? await take(api.POST("/admin/api/plan", { body: { ...change } })) : null;
  return take(
    api.POST("/admin/api/mcp/servers/{server_id}/test", {
      params: { path: { server_id: change.id }, header: plan ? { "Toolgate-Plan": plan.id } : undefined },
      body: change.body as Body,
    }),
  );
}

export function Trial({ change, onWanted }: TrialProps) {
  const me = useMe();
  const trial = useMutation({ mutationFn: (tried: Change) => tryOut(tried, me.require_plan) });
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
            loading={trial.isPending}
            onClick={() => {
              onWanted();
              if (change !== null) trial.mutate(change);
            }}
          >
            Test connection
          </Button>
        </Group>
        <div role="status" aria-label="Result of the test">
          {trial.isPending ? <Elapsed /> : null}
          {trial.data && !trial.isPending ? <TrialResult answer={trial.data} /> : null}
        </div>
        {trial.isError && !trial.isPending ? <Failure error={trial.error} /> : null}
      </Stack>
    </Card>
  );
}

function Elapsed() {
  const [seconds, setSeconds] = useState(0);
  useEffect(() => {
    const timer = setInterval(() => setSeconds((old) => old + 1), 1_000);
    return () => clearInterval(timer);
  }, []);
  return (
    <Text size="sm" c="dimmed">
      Connecting, for {seconds} s …
    </Text>
  );
}

/** At most this many names are shown; the rest are counted. */
const MOST = 60;

function TrialResult({ answer }: { readonly answer: TrialResponse }) {
  const times = [
    answer.connect_ms === null ? null : `connected in ${duration(answer.connect_ms)}`,
    answer.list_ms === null ? null : `listed in ${duration(answer.list_ms)}`,
    answer.version === null ? null : visibleText(`MCP ${answer.version}`),
  ].filter((one) => one !== null);
  const refused = Object.entries(answer.quarantined);
  return (
    <Alert
      color={answer.ok ? "green" : "red"}
      title={answer.ok ? "Connection succeeded" : "Connection failed"}
    >
      <Stack gap="xs">
        {answer.error ? <Untrusted text={answer.error} /> : null}
        {answer.hint ? (
          <Text size="sm">
            <Untrusted text={answer.hint} />
          </Text>
        ) : null}
        {times.length > 0 ? <Text size="sm">{times.join(", ")}</Text> : null}
        {answer.ok ? <Found tools={answer.tools} /> : null}
        {refused.slice(0, MOST).map(([tool, why]) => (
          <Text size="sm" key={tool} component="div">
            <Untrusted text={tool} mono /> is rejected: <Untrusted text={why} />
          </Text>
        ))}
        {answer.stderr_tail ? <CodeBlock text={answer.stderr_tail} label="stderr" /> : null}
      </Stack>
    </Alert>
  );
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
