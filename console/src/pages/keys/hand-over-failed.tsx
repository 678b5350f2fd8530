/** A step of a hand-over that failed: what is there all the same, and what to do. */
import { Alert, Anchor, Button, Group, Stack, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Link } from "react-router";
import { Failure } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { revokeKey, StepFailed } from "./use-hand-over";

interface HandOverFailedProps {
  readonly error: Error;
  readonly onAgain: () => void;
}

export function HandOverFailed({ error, onAgain }: HandOverFailedProps) {
  if (!(error instanceof StepFailed)) return <Failure error={error} />;
  const { step, wanted, isKeyThere, cause } = error;
  return (
    <Stack gap="xs">
      <Failure error={cause} />
      {step === "task" ? (
        <Text size="sm">Nothing was created. What you typed is kept.</Text>
      ) : (
        <Alert
          color="yellow"
          title={wanted.task === null ? "What was created" : "The task is there, the key is not ready"}
        >
          <Stack gap="xs" align="flex-start">
            {wanted.task === null ? null : (
              <Text size="sm" component="div">
                Task{" "}
                <Anchor
                  c="inherit"
                  underline="always"
                  component={Link}
                  to={`/tasks/${encodeURIComponent(wanted.task.id)}`}
                  target="_blank"
                >
                  <Untrusted text={wanted.task.id} mono />
                </Anchor>{" "}
                was created. The next attempt uses it; delete it if you do not need it.
              </Text>
            )}
            <KeyState isKeyThere={isKeyThere} keyId={wanted.key.key_id} onAgain={onAgain} />
          </Stack>
        </Alert>
      )}
    </Stack>
  );
}

interface KeyStateProps {
  readonly isKeyThere: boolean | null;
  readonly keyId: string;
  readonly onAgain: () => void;
}

function KeyState({ isKeyThere, keyId, onAgain }: KeyStateProps) {
  const queries = useQueryClient();
  const revoke = useMutation({
    mutationFn: () => revokeKey(keyId),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["key"] }),
  });
  if (isKeyThere !== true)
    return (
      <>
        <Text size="sm">
          {isKeyThere === null
            ? "It is not known whether the key was created: its response was lost. Look at the list of keys when the gateway is back."
            : "The key was not created."}
        </Text>
        <Button size="xs" variant="default" onClick={onAgain}>
          Try again
        </Button>
      </>
    );
  return (
    <>
      <Text size="sm" component="div">
        Key <Untrusted text={keyId} mono /> was created, but its secret was lost on the way and cannot be
        shown again.
        {revoke.isSuccess ? " It is revoked now." : " Revoke it, then create another."}
      </Text>
      {revoke.isError ? <Failure error={revoke.error} /> : null}
      <Group gap="xs">
        {revoke.isSuccess ? (
          <Button size="xs" variant="default" onClick={onAgain}>
            Try again
          </Button>
        ) : (
          <Button
            size="xs"
            color="red"
            variant="light"
            loading={revoke.isPending}
            onClick={() => revoke.mutate()}
          >
            Revoke the lost key
          </Button>
        )}
      </Group>
    </>
  );
}
