/** One approval: caller, tool, arguments, and the rule that requires it. */
import { Anchor, Badge, Card, Group, SimpleGrid, Stack, Text } from "@mantine/core";
import { Link } from "react-router";
import { useMay } from "@/api/me";
import { CodeBlock } from "@/parts/copy";
import { Fact } from "@/parts/facts";
import { ago, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { Decision } from "./decision";
import { type Approval, COLOURS, decidedAs } from "./states";

interface ApprovalCardProps {
  readonly approval: Approval;
  /** In a list: links to its page. */
  readonly isInList?: boolean;
}

export function ApprovalCard({ approval, isInList = false }: ApprovalCardProps) {
  const mayDecide = useMay("publisher");
  const name = <Untrusted text={`${approval.server_id}.${approval.tool}`} mono />;
  return (
    <Card withBorder component="article" aria-label={`Approval ${approval.approval_id}`} maw={960}>
      <Stack gap="sm">
        <Group justify="space-between">
          <Text fw={600} component="div">
            {isInList ? (
              <Anchor component={Link} to={`/approvals/${encodeURIComponent(approval.approval_id)}`}>
                {name}
              </Anchor>
            ) : (
              name
            )}
          </Text>
          <ApprovalState state={approval.state} />
        </Group>
        <Facts approval={approval} />
        <CodeBlock text={JSON.stringify(approval.arguments, null, 2)} label="arguments" />
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
    <Badge color={COLOURS[state]} variant="light" tt="none" miw="max-content">
      {state}
    </Badge>
  );
}

function Facts({ approval }: { readonly approval: Approval }) {
  const waits = approval.state === "pending" || approval.state === "approved";
  return (
    <SimpleGrid cols={{ base: 1, sm: 2 }} spacing={4} component="dl" m={0}>
      <Fact name="Caller">
        <Untrusted text={approval.principal} mono />
      </Fact>
      <Fact name="Task">
        {approval.task_id === null ? "none" : <Untrusted text={approval.task_id} mono />}
      </Fact>
      <Fact name="Requested">
        <When ms={approval.created_ms} /> at the {approval.door} endpoint
      </Fact>
      <Fact name={waits ? "Expires" : "Expiry"}>
        <When ms={approval.expires_ms} />
      </Fact>
      <Fact name="Rule">
        <Untrusted text={approval.why} />
      </Fact>
      <Fact name="Definition">
        <span className="mono">{approval.definition.slice(0, 12)}…</span>
      </Fact>
      {approval.session === null ? null : (
        <Fact name="Session">
          <Untrusted text={approval.session} mono />
        </Fact>
      )}
      {approval.decided_ms === null ? null : <Decided approval={approval} at={approval.decided_ms} />}
      {approval.used_ms === null ? null : (
        <Fact name="Called">
          <When ms={approval.used_ms} />
        </Fact>
      )}
    </SimpleGrid>
  );
}

function Decided({ approval, at }: { readonly approval: Approval; readonly at: number }) {
  const as = decidedAs(approval);
  return (
    <>
      <Fact name="Decided">
        <When ms={at} /> by <Untrusted text={approval.decided_by ?? ""} mono />
        {as === null ? null : ` (${as})`}
      </Fact>
      <Fact name="Reason">{approval.reason ? <Untrusted text={approval.reason} /> : "none"}</Fact>
    </>
  );
}

function When({ ms }: { readonly ms: number }) {
  return <span title={moment(ms)}>{ago(ms)}</span>;
}
