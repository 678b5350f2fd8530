/** One question of a chat and its answer, with each tool call. Texts are the model's and the tools'. */
import {
  Alert,
  Anchor,
  Badge,
  Card,
  Collapse,
  Group,
  Loader,
  Paper,
  Stack,
  Text,
  UnstyledButton,
} from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconChevronDown, IconChevronRight, IconTool } from "@tabler/icons-react";
import { Link } from "react-router";
import { useMay } from "@/api/me";
import { CodeBlock } from "@/parts/copy";
import { Prose } from "@/parts/prose";
import { isObject } from "@/parts/schema-form-model";
import { Failure } from "@/parts/states";
import { count, duration } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { approvalOf, callOf, type ToolStep } from "./chat-events";
import { JsonView } from "./json-view";
import { playPath } from "./paths";
import { RecordLink } from "./record-link";
import { jsonIn } from "./tables";
import type { Turn } from "./use-chat";

interface TurnShownProps {
  readonly turn: Turn;
  /** Asks the same again. Undefined: that is not possible now. */
  readonly onAgain: (() => void) | undefined;
}

export function TurnShown({ turn, onAgain }: TurnShownProps) {
  return (
    <Stack gap="sm" component="article" aria-label={visibleText(turn.asked.slice(0, 80))}>
      <Paper p="sm" withBorder style={{ alignSelf: "flex-end", maxWidth: "85%" }}>
        <Untrusted text={turn.asked} />
      </Paper>
      {turn.steps.map((step, place) =>
        step.kind === "text" ? (
          // biome-ignore lint/suspicious/noArrayIndexKey: steps are only added at the end
          <div key={place}>
            <Untrusted text={step.text} />
          </div>
        ) : (
          // biome-ignore lint/suspicious/noArrayIndexKey: steps are only added at the end
          <CallShown key={place} step={step} turn={turn} number={place + 1} />
        ),
      )}
      {turn.state === "failed" ? <Failure error={turn.error} onRetry={onAgain} /> : null}
      {turn.warnings.map((one) => (
        <Alert key={one} color="yellow">
          <Prose text={one} />
        </Alert>
      ))}
      <Foot turn={turn} />
    </Stack>
  );
}

const LIMITS: Readonly<Record<string, string>> = {
  round_limit: "The limit of tool rounds ended it.",
  call_limit: "The limit of tool calls ended it.",
  time_limit: "The time limit ended it.",
  repeated_calls: "The model repeated the same call.",
  model_silent: "The model ended without text.",
};

function Foot({ turn }: { readonly turn: Turn }) {
  if (turn.state === "running")
    return (
      <Group gap="xs" role="status">
        <Loader size="xs" aria-hidden />
        <Text size="sm" c="dimmed">
          {turn.steps.length === 0 ? "Waiting for the model" : "Answering"}
        </Text>
      </Group>
    );
  return (
    <Group gap="sm">
      {turn.state === "stopped" ? (
        <Badge color="gray" variant="light">
          stopped
        </Badge>
      ) : null}
      {turn.stopped ? <Text size="sm">{LIMITS[turn.stopped] ?? turn.stopped}</Text> : null}
      <Text size="sm" c="dimmed">
        {duration(turn.tookMs)}
        {turn.cost ? `, ${count(turn.cost.input)} tokens in, ${count(turn.cost.output)} out` : ""}
      </Text>
      <Requests request={turn.request} />
    </Group>
  );
}

function Requests({ request }: { readonly request: string }) {
  const mayRead = useMay("viewer");
  if (!mayRead || request === "") return null;
  return (
    <Anchor component={Link} to={`/activity?${new URLSearchParams({ request })}`} fz="sm">
      Audit records
    </Anchor>
  );
}

const STATES: Readonly<Record<ToolStep["state"], readonly [words: string, colour: string]>> = {
  running: ["running", "blue"],
  ok: ["success", "green"],
  failed: ["failed", "red"],
  refused: ["not made", "orange"],
  open: ["ended without a result", "gray"],
};

interface CallShownProps {
  readonly step: ToolStep;
  readonly turn: Turn;
  /** Of the step in its answer. */
  readonly number: number;
}

function CallShown({ step, turn, number }: CallShownProps) {
  const [isOpen, { toggle }] = useDisclosure(false);
  const [words, colour] = STATES[step.state];
  const Icon = isOpen ? IconChevronDown : IconChevronRight;
  return (
    <Card
      withBorder
      padding="xs"
      component="article"
      aria-label={`Step ${number}: ${visibleText(step.tool)}`}
    >
      <Group gap="sm" wrap="wrap">
        <UnstyledButton onClick={toggle} aria-expanded={isOpen} style={{ flex: "1 1 200px" }}>
          <Group gap="xs" wrap="nowrap">
            <Icon size={16} aria-hidden style={{ flex: "none" }} />
            <IconTool size={16} aria-hidden style={{ flex: "none" }} />
            <Text span fw={550}>
              <Untrusted text={step.tool} mono />
            </Text>
            {isOpen ? null : <Short text={step.args} />}
          </Group>
        </UnstyledButton>
        {step.ms === null ? null : (
          <Text size="sm" c="dimmed">
            {duration(step.ms)}
          </Text>
        )}
        <Badge
          color={colour}
          variant="light"
          leftSection={step.state === "running" ? <Loader size={10} /> : null}
        >
          {words}
        </Badge>
      </Group>
      <Approval step={step} />
      <Collapse expanded={isOpen}>{isOpen ? <Opened step={step} turn={turn} /> : null}</Collapse>
    </Card>
  );
}

const SHORT = 80;

function Short({ text }: { readonly text: string }) {
  if (text === "" || text === "{}") return null;
  return (
    <Text span size="sm" c="dimmed" truncate visibleFrom="xs">
      <Untrusted text={text.length > SHORT ? `${text.slice(0, SHORT)}…` : text} mono />
    </Text>
  );
}

function Approval({ step }: { readonly step: ToolStep }) {
  const mayRead = useMay("viewer");
  const approval = approvalOf(step);
  if (approval === null) return null;
  return (
    <Text size="sm" mt="xs">
      This call needs approval. Once it is approved, ask the model to call it again.{" "}
      {mayRead ? (
        <Anchor component={Link} to={`/approvals/${encodeURIComponent(approval)}`}>
          Open the approval
        </Anchor>
      ) : (
        <>
          Approval <span className="mono">{approval}</span>
        </>
      )}
    </Text>
  );
}

function Opened({ step, turn }: { readonly step: ToolStep; readonly turn: Turn }) {
  return (
    <Stack gap="xs" mt="xs">
      <Text size="sm" c="dimmed">
        Arguments
      </Text>
      <Value text={step.args || "{}"} label="arguments" />
      {step.state === "running" || step.state === "open" ? null : (
        <>
          <Text size="sm" c="dimmed">
            What the model got{step.code ? ` (${step.code})` : ""}
          </Text>
          <Got step={step} />
        </>
      )}
      <Group gap="md">
        <Anchor component={Link} to={playPath(step.tool, turn.task)} fz="sm">
          Try this tool
        </Anchor>
        {turn.state === "running" ? null : (
          <RecordLink request={turn.request} call={callOf(turn.steps, step)} />
        )}
      </Group>
    </Stack>
  );
}

/** The result, or the error in words. */
function Got({ step }: { readonly step: ToolStep }) {
  const value = step.code === "" ? undefined : jsonIn(step.result);
  const error = isObject(value) ? value.error : undefined;
  if (!isObject(error) || typeof error.message !== "string")
    return <Value text={step.result} label="result" />;
  return (
    <Text size="sm" component="div">
      <Prose text={error.message} />
    </Text>
  );
}

function Value({ text, label }: { readonly text: string; readonly label: string }) {
  const value = jsonIn(text);
  return value === undefined ? (
    <CodeBlock text={text} label={label} />
  ) : (
    <JsonView value={value} label={label} />
  );
}
