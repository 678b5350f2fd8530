/** A call that failed: what happened, and what to do. */
import { Alert, Anchor, Button, Card, Group, Stack, Text } from "@mantine/core";
import { IconHourglass } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { ApiError, type Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { Prose } from "@/parts/prose";
import { Failure } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { serverOf } from "../catalog/paths";
import { approvalQuery } from "./queries";
import { RecordLink } from "./record-link";
import type { Outcome } from "./use-call";

interface CallFailureProps {
  readonly outcome: Outcome;
  readonly tool: string;
  /** Makes the same call again. */
  readonly onRetry: () => void;
  readonly isRunning: boolean;
}

export function CallFailure(props: CallFailureProps) {
  const { error } = props.outcome;
  const approval =
    error instanceof ApiError && error.code === "mcp_approval_required" ? error.data.approval_id : undefined;
  if (typeof approval === "string") return <NeedsApproval {...props} approval={approval} />;
  return <Failed {...props} />;
}

function Failed({ outcome, tool, onRetry, isRunning }: CallFailureProps) {
  const step = stepOf(outcome, tool);
  return (
    <Card withBorder padding="md" component="section" aria-label="Result">
      <Stack gap="sm">
        <Failure error={outcome.error} />
        <Group gap="md">
          <Button size="xs" variant="default" onClick={onRetry} loading={isRunning}>
            Call again
          </Button>
          {step ? (
            <Anchor component={Link} to={step.path} fz="sm">
              {step.title}
            </Anchor>
          ) : null}
          <RecordLink request={outcome.request} />
        </Group>
      </Stack>
    </Card>
  );
}

interface Step {
  readonly title: string;
  readonly path: string;
}

/** Where to look for the cause. */
function stepOf({ error, task }: Outcome, tool: string): Step | null {
  if (!(error instanceof ApiError)) return null;
  const server = `/servers/${encodeURIComponent(serverOf(tool))}`;
  switch (error.code) {
    case "unknown_tool":
    case "policy_denied":
    case "empty_scope":
      return {
        title: "Why? See the scope lens",
        path: `/scope?${new URLSearchParams({ why: tool, ...(task ? { task } : {}) })}`,
      };
    case "mcp_unavailable":
    case "mcp_timeout":
    case "mcp_busy":
    case "mcp_login_required":
      return { title: "Open the server", path: server };
    case "budget_exceeded":
      return task ? { title: "Open the task's quotas", path: `/tasks/${encodeURIComponent(task)}` } : null;
    default:
      return null;
  }
}

function NeedsApproval({
  outcome,
  approval,
  onRetry,
  isRunning,
}: CallFailureProps & { readonly approval: string }) {
  const mayRead = useMay("viewer");
  const { data } = useQuery({ ...approvalQuery(approval), enabled: mayRead });
  const state = data?.state ?? "pending";
  return (
    <Card withBorder padding="md" component="section" aria-label="Result">
      <Alert color={COLOURS[state] ?? "yellow"} icon={<IconHourglass />} title={TITLES[state]} role="status">
        <Stack gap="xs" align="flex-start">
          <div>
            <Says state={state} approval={data} />
          </div>
          <Group gap="md">
            <Button
              size="xs"
              variant={state === "approved" ? "filled" : "default"}
              onClick={onRetry}
              loading={isRunning}
            >
              Call again
            </Button>
            {mayRead ? (
              <Anchor component={Link} to={`/approvals/${encodeURIComponent(approval)}`} fz="sm">
                Open the approval
              </Anchor>
            ) : (
              <Text size="sm" component="span">
                Approval <span className="mono">{approval}</span>
              </Text>
            )}
            <RecordLink request={outcome.request} />
          </Group>
        </Stack>
      </Alert>
    </Card>
  );
}

type State = Shapes["ApprovalShown"]["state"];

const COLOURS: Readonly<Partial<Record<State, string>>> = { approved: "green", used: "gray", denied: "red" };
const TITLES: Readonly<Record<State, string>> = {
  pending: "This call needs approval",
  approved: "The call is approved",
  used: "The approval is used",
  denied: "The call is denied",
  expired: "The approval expired",
};

function Says({
  state,
  approval,
}: {
  readonly state: State;
  readonly approval: Shapes["ApprovalShown"] | undefined;
}) {
  switch (state) {
    case "pending":
      return "It waits for a person. Once it is approved, call again with the same arguments.";
    case "approved":
      return "Call again: the approval is for exactly these arguments, and for one call.";
    case "used":
      return "The approved call was made. Another call needs another approval.";
    case "denied":
      return approval?.reason ? (
        <>
          The reason: <Prose text={approval.reason} />
        </>
      ) : (
        <Untrusted text="No reason is given." />
      );
    case "expired":
      return "No one decided in time. Call again to request another approval.";
  }
}
