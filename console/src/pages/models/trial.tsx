/** A test of a chat upstream: whether it responds, and which models callers get. No model is prompted. */
import { Alert, Button, Stack, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { api, type Shapes, take } from "@/api/client";
import { Prose } from "@/parts/prose";
import { Failure } from "@/parts/states";
import { duration } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import type { Body } from "./draft";

/** More models than this are counted, not named. */
const MOST = 60;

interface TrialProps {
  readonly id: string;
  /** What to try, before it is saved. Without it: what is saved. */
  readonly body?: Body;
}

export function Trial({ id, body }: TrialProps) {
  const trial = useMutation({
    mutationFn: () =>
      take(
        api.POST("/admin/api/chat-upstreams/{upstream_id}/test", {
          params: { path: { upstream_id: id } },
          body,
        }),
      ),
  });
  return (
    <Stack gap="sm" align="flex-start">
      <Button variant="default" onClick={() => trial.mutate()} loading={trial.isPending} disabled={id === ""}>
        Test connection
      </Button>
      {trial.isError ? <Failure error={trial.error} /> : null}
      {trial.data ? <Result found={trial.data} /> : null}
    </Stack>
  );
}

function Result({ found }: { readonly found: Shapes["ChatTrialResponse"] }) {
  if (!found.ok)
    return (
      <Alert color="red" title={<Prose text={found.error} />} role="alert">
        <Prose text={found.hint} />
      </Alert>
    );
  return (
    <Alert color="green" title={`Connected in ${duration(found.took_ms)}`} role="status">
      <Models
        title="Callers get"
        names={found.admitted}
        none="No listed model matches the record's patterns."
      />
      <Models title="Callers do not get" names={found.others} />
    </Alert>
  );
}

interface ModelsProps {
  readonly title: string;
  readonly names: readonly string[];
  readonly none?: string;
}

function Models({ title, names, none }: ModelsProps) {
  if (names.length === 0) return none ? <Text size="sm">{none}</Text> : null;
  return (
    <Text size="sm" component="div">
      {title} {names.length}: <Untrusted text={names.slice(0, MOST).join(", ")} mono />
      {names.length > MOST ? ` and ${names.length - MOST} more` : null}
    </Text>
  );
}
