/** What the receiver of a key gets: the tools of its task, their tokens, and where it works. */
import { Alert, Anchor, Card, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { api, take } from "@/api/client";
import { isOnlyHere } from "@/parts/client-setup";
import { PlanPanel } from "@/parts/plan-panel";
import { Prose } from "@/parts/prose";
import { Failure, Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import type { usePlan } from "@/parts/use-plan";
import { inParts } from "../catalog/picks";

/** More tools are counted, not named. */
const MOST = 20;

type Wanted = { readonly names: readonly string[] } | { readonly task: string };

/** The tools of a task, or of picks that will be one. */
export function useOffer(wanted: Wanted) {
  const queries =
    "task" in wanted ? [{ task: wanted.task }] : inParts(wanted.names).map((tools) => ({ tools }));
  return useQuery({
    queryKey: ["derived", "scope", "hand-over", wanted],
    queryFn: async ({ signal }) => {
      const parts = await Promise.all(
        queries.map((query) => take(api.GET("/api/v1/mcp/scope", { params: { query }, signal }))),
      );
      return {
        tools: parts.flatMap((one) => one.tools),
        tokens: parts.reduce((sum, one) => sum + one.tokens, 0),
        registered: parts[0]?.registered_tools ?? 0,
        warnings: [...new Set(parts.flatMap((one) => [one.refusal?.message ?? "", ...one.warnings]))].filter(
          Boolean,
        ),
      };
    },
    enabled: "task" in wanted ? wanted.task !== "" : wanted.names.length > 0,
    retry: false,
  });
}

interface EffectProps {
  readonly offer: ReturnType<typeof useOffer>;
  readonly url: string;
  readonly taskId: string;
  /** Of the new task; null: it exists. */
  readonly plan: ReturnType<typeof usePlan> | null;
}

export function Effect({ offer, url, taskId, plan }: EffectProps) {
  return (
    <Card withBorder component="section" aria-label="What they get">
      <Stack gap="sm">
        <Title order={2} size="h4">
          What they get
        </Title>
        {offer.fetchStatus === "idle" && offer.isPending ? (
          <Text c="dimmed">Choose a task, or pick tools.</Text>
        ) : (
          <Loaded query={offer} what="Counting the tools">
            {(found) => <Offered {...found} taskId={plan === null ? taskId : null} />}
          </Loaded>
        )}
        {plan?.isError ? <Failure error={plan.error} /> : null}
        {plan?.data && !plan.isError ? <PlanPanel plan={plan.data} /> : null}
        {isOnlyHere(url) ? <OnlyHere url={url} /> : null}
      </Stack>
    </Card>
  );
}

interface OfferedProps {
  readonly tools: readonly string[];
  readonly tokens: number;
  readonly registered: number;
  readonly warnings: readonly string[];
  /** The task to look at; null: it does not exist yet. */
  readonly taskId: string | null;
}

function Offered({ tools, tokens, registered, warnings, taskId }: OfferedProps) {
  return (
    <>
      <Text fw={600} c={tools.length === 0 ? "var(--tone-bad)" : undefined}>
        {count(tools.length)} of {count(registered)} tools offered, about {count(tokens)} tokens per list
      </Text>
      {tools.length === 0 ? (
        <Text size="sm">
          A client with this key sees no tool now.{" "}
          {taskId === null ? null : (
            <Anchor component={Link} to={`/scope?${new URLSearchParams({ task: taskId })}`}>
              See why
            </Anchor>
          )}
        </Text>
      ) : (
        <Text size="sm" component="div">
          <Untrusted text={tools.slice(0, MOST).join(", ")} mono />
          {tools.length > MOST ? ` and ${count(tools.length - MOST)} more` : null}
        </Text>
      )}
      {warnings.map((one) => (
        <Alert key={one} color="yellow">
          <Prose text={one} />
        </Alert>
      ))}
    </>
  );
}

/** Shown if the gateway listens on loopback only. */
export function OnlyHere({ url }: { readonly url: string }) {
  return (
    <Alert color="yellow" title="This gateway is reachable on its own machine only">
      <Text size="sm" component="div">
        <Prose
          text={`\`${new URL(url).host}\` is a loopback address: the key works for programs on this machine. For someone elsewhere, start the gateway with \`--listen\` and an address of your network, set \`public_url\`, and hand over access again. `}
        />
        <Anchor
          c="inherit"
          underline="always"
          component={Link}
          to="/guides/how-to/production"
          target="_blank"
        >
          Production guide
        </Anchor>
      </Text>
    </Alert>
  );
}
