/** A server's state and offer in words, and the next step, as rows and heads of pages show them. */
import { Anchor, Badge, Button, Modal, Stack, Text } from "@mantine/core";
import { useState } from "react";
import { Link } from "react-router";
import { useMay } from "@/api/me";
import { Prose } from "@/parts/prose";
import { count } from "@/parts/time";
import { visibleText } from "@/parts/visible";
import type { Server } from "./server-form";
import { nextStepOf, type OfferWords, type Status, sentence, type Tone } from "./server-status";
import { TrialStatus } from "./trial";
import { useTrial } from "./use-trial";

const COLOURS: Readonly<Record<Tone, string>> = { good: "green", warn: "orange", bad: "red", calm: "gray" };

export function StateWords({ status }: { readonly status: Status }) {
  return (
    <Badge color={COLOURS[status.tone]} variant="light">
      {status.words}
    </Badge>
  );
}

/** The state, and below it the cause, in two lines at most. */
export function StateCell({ status }: { readonly status: Status }) {
  const hasCause = status.cause !== "" && (status.tone === "bad" || status.tone === "warn");
  return (
    <>
      <StateWords status={status} />
      {hasCause ? (
        <Text size="sm" lineClamp={2} component="div" mt={4} title={visibleText(status.cause)}>
          <Prose text={sentence(status.cause)} />
        </Text>
      ) : null}
    </>
  );
}

/** How many tools are offered; at 0 with the reason, and a link to where that is changed. */
export function OfferLine({ offer }: { readonly offer: OfferWords | null }) {
  if (offer === null) return <Text size="sm">–</Text>;
  const { offered, listed, isNone, why, to, action } = offer;
  return (
    <>
      <Text
        size="sm"
        fw={isNone ? 600 : undefined}
        c={isNone ? "var(--tone-bad)" : undefined}
        style={{ whiteSpace: "nowrap" }}
        component="span"
      >
        {listed === 0 ? "0 offered" : `${count(offered)} of ${count(listed)} offered`}
      </Text>
      {isNone && why !== "" ? (
        <Text size="sm" component="div">
          {why}
          {to === "" ? null : (
            <>
              :{" "}
              <Anchor component={Link} to={to}>
                {action.toLowerCase()}
              </Anchor>
            </>
          )}
        </Text>
      ) : null}
    </>
  );
}

/** What one would do next with a server: a page, or a test in place. */
export function NextAction({
  server,
  isFilled = false,
}: {
  readonly server: Server;
  readonly isFilled?: boolean;
}) {
  const isAdmin = useMay("admin");
  const [isTesting, setTesting] = useState(false);
  const step = nextStepOf(server);
  const variant = isFilled && step.to !== "" ? "filled" : "default";
  if (step.to !== "")
    return isAdmin || step.label === "Open output" ? (
      <Button component={Link} to={step.to} size={isFilled ? "sm" : "xs"} variant={variant}>
        {step.label}
      </Button>
    ) : null;
  if (!isAdmin) return null;
  return (
    <>
      <Button
        size={isFilled ? "sm" : "xs"}
        variant="default"
        aria-label={`Test ${server.server_id}`}
        onClick={() => setTesting(true)}
      >
        {step.label}
      </Button>
      <Modal
        opened={isTesting}
        onClose={() => setTesting(false)}
        title={`Test ${server.server_id}`}
        size="lg"
      >
        {isTesting ? <SavedTest server={server} /> : null}
      </Modal>
    </>
  );
}

/** A test of the server as it is saved. */
function SavedTest({ server }: { readonly server: Server }) {
  const trial = useTrial();
  return (
    <Stack>
      <Text size="sm">Connects once, next to the connection in use, and lists the tools.</Text>
      <TrialStatus trial={trial} body={server} />
      {trial.isPending ? null : (
        <Button
          variant={trial.data ? "default" : "filled"}
          data-autofocus
          onClick={() => trial.mutate({ id: server.server_id, body: null })}
        >
          {trial.data || trial.isError ? "Test again" : "Test connection"}
        </Button>
      )}
    </Stack>
  );
}
