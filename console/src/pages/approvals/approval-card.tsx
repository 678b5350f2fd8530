/** One approval: who asked for which call, with which arguments, why that needs an approval, and the decision. */
import { Anchor, Badge, Card, Group, Stack, Text } from "@mantine/core";
import { Link } from "react-router";
import { useMay } from "@/api/me";
import { Prose } from "@/parts/prose";
import { ruleInWords } from "@/parts/reasons";
import { ago, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { ArgumentsTable } from "./arguments-table";
import { Decision } from "./decision";
import { type Approval, COLOURS, decidedAs, decisionWords, nameOf } from "./states";

interface ApprovalCardProps {
  readonly approval: Approval;
  /** In a list: links to its page. */
  readonly isInList?: boolean;
}

export function ApprovalCard({ approval, isInList = false }: ApprovalCardProps) {
  const mayDecide = useMay("publisher");
  const name = <Untrusted text={nameOf(approval)} mono />;
  return (
    <Card
      withBorder
      component="article"
      aria-label={`Approval of ${visibleText(nameOf(approval))}`}
      maw={960}
    >
      <Stack gap="sm">
        {isInList ? (
          <Group justify="space-between">
            <Text fw={600} component="div">
              <Anchor component={Link} to={`/approvals/${encodeURIComponent(approval.approval_id)}`}>
                {name}
              </Anchor>
            </Text>
            <ApprovalState state={approval.state} />
          </Group>
        ) : null}
        <Stack gap={2}>
          <Asked approval={approval} />
          <Decided approval={approval} />
        </Stack>
        <ArgumentsTable values={approval.arguments} />
        {isInList ? null : <Details approval={approval} />}
        {approval.state !== "pending" ? null : mayDecide ? (
          <Decision approval={approval} />
        ) : (
          <Text c="dimmed">Deciding requires the role publisher.</Text>
        )}
      </Stack>
    </Card>
  );
}

export function ApprovalState({ state }: { readonly state: Approval["state"] }) {
  return (
    <Badge color={COLOURS[state]} variant="light">
      {state}
    </Badge>
  );
}

/** Who wants what, since when and until when, and the rule, in sentences. */
function Asked({ approval }: { readonly approval: Approval }) {
  const words = ruleInWords(approval.why);
  return (
    <>
      <Text size="sm" component="div">
        Asked by <Untrusted text={approval.principal} mono />
        {approval.task_id === null ? null : (
          <>
            {" for the task "}
            <Anchor component={Link} to={`/tasks/${encodeURIComponent(approval.task_id)}`} inherit>
              <Untrusted text={approval.task_id} mono />
            </Anchor>
          </>
        )}{" "}
        <When ms={approval.created_ms} />
        {approval.state === "pending" ? (
          <>
            ; expires <When ms={approval.expires_ms} />
          </>
        ) : null}
        .
      </Text>
      <Text size="sm" c="dimmed" component="div">
        {words ? `Required by ${words}: ` : "Required by "}
        <Prose text={approval.why} />
      </Text>
    </>
  );
}

function Decided({ approval }: { readonly approval: Approval }) {
  if (approval.state === "expired" && approval.decided_ms === null)
    return <Text size="sm">No one decided in time.</Text>;
  if (approval.decided_ms === null) return null;
  const as = decidedAs(approval);
  return (
    <Text size="sm" component="div">
      {decisionWords(approval.state)} by <Untrusted text={approval.decided_by ?? ""} mono />
      {as === null ? null : ` (${as})`} <When ms={approval.decided_ms} />
      {approval.reason ? (
        <>
          : “
          <Untrusted text={approval.reason} />”
        </>
      ) : (
        ", without a reason"
      )}
      .
      {approval.used_ms === null ? null : (
        <>
          {" The call was made "}
          <When ms={approval.used_ms} />.
        </>
      )}
    </Text>
  );
}

/** What few need: for its own page. */
function Details({ approval }: { readonly approval: Approval }) {
  return (
    <Text size="xs" c="dimmed" component="div">
      At the {approval.door} endpoint
      {approval.session === null ? null : (
        <>
          , session <Untrusted text={approval.session} mono />
        </>
      )}
      . The approval counts for exactly these arguments and the definition{" "}
      <span className="mono" title={approval.definition}>
        {approval.definition.slice(0, 12)}…
      </span>
    </Text>
  );
}

function When({ ms }: { readonly ms: number }) {
  return <span title={moment(ms)}>{ago(ms)}</span>;
}
