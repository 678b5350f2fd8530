/** A chat as its stream tells it: text, tool calls with arguments and results, and what it cost. */
import { ApiError } from "@/api/error";
import { isSame } from "@/parts/use-draft";
import { jsonIn } from "./tables";

export interface ToolStep {
  readonly kind: "tool";
  readonly id: string;
  readonly tool: string;
  /** As the model wrote them: maybe no JSON. */
  readonly args: string;
  /** `refused`: the gateway did not make the call. `open`: the chat ended before it did. */
  readonly state: "running" | "ok" | "failed" | "refused" | "open";
  readonly ms: number | null;
  readonly code: string;
  readonly result: string;
}

export interface TextStep {
  readonly kind: "text";
  readonly text: string;
}

export type ChatStep = ToolStep | TextStep;

export interface Cost {
  readonly input: number;
  readonly output: number;
}

export interface Answered {
  readonly steps: readonly ChatStep[];
  /** Null: the model's server reported none. */
  readonly cost: Cost | null;
  /** The limit that ended the chat; empty: none. */
  readonly stopped: string;
  readonly warnings: readonly string[];
}

export const NOTHING: Answered = { steps: [], cost: null, stopped: "", warnings: [] };

/** A chunk of the stream, as much of it as is understood. */
interface Chunk {
  readonly choices?: readonly {
    readonly delta?: { readonly content?: unknown; readonly refusal?: unknown };
  }[];
  readonly usage?: { readonly prompt_tokens?: unknown; readonly completion_tokens?: unknown } | null;
  readonly toolgate?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly message?: unknown; readonly code?: unknown };
}

const textOf = (value: unknown) => (typeof value === "string" ? value : "");
const numberOf = (value: unknown) => (typeof value === "number" ? value : 0);

/** `so far` with one more event of the stream. Throws an ApiError if the event is one. */
export function withEvent(before: Answered, data: string): Answered {
  if (data === "[DONE]") return before;
  const chunk = JSON.parse(data) as Chunk;
  if (chunk.error)
    throw new ApiError(200, textOf(chunk.error.code) || "error", textOf(chunk.error.message), "");
  let after = before;
  const delta = chunk.choices?.[0]?.delta;
  const text = textOf(delta?.content) || textOf(delta?.refusal);
  if (text !== "") after = { ...after, steps: withText(after.steps, text) };
  if (chunk.toolgate) after = withReport(after, chunk.toolgate);
  if (chunk.usage) {
    const { prompt_tokens, completion_tokens } = chunk.usage;
    after = { ...after, cost: { input: numberOf(prompt_tokens), output: numberOf(completion_tokens) } };
  }
  return after;
}

function withText(steps: readonly ChatStep[], text: string): readonly ChatStep[] {
  const last = steps.at(-1);
  if (last?.kind === "text") return [...steps.slice(0, -1), { kind: "text", text: last.text + text }];
  // The pause between two rounds is not needed where a call is between them.
  const begun = text.trimStart();
  return begun === "" ? steps : [...steps, { kind: "text", text: begun }];
}

function withReport(before: Answered, report: Readonly<Record<string, unknown>>): Answered {
  if (typeof report.event === "string") return { ...before, steps: withTool(before.steps, report) };
  const warnings = Array.isArray(report.warnings) ? report.warnings.map(textOf).filter(Boolean) : [];
  return {
    ...before,
    stopped: textOf(report.stopped) || before.stopped,
    warnings: [...before.warnings, ...warnings],
  };
}

function withTool(
  steps: readonly ChatStep[],
  report: Readonly<Record<string, unknown>>,
): readonly ChatStep[] {
  const id = textOf(report.call_id);
  const isStart = report.event === "tool_started";
  const state = isStart
    ? "running"
    : report.ok === true
      ? "ok"
      : report.event === "tool_refused"
        ? "refused"
        : "failed";
  const step: ToolStep = {
    kind: "tool",
    id,
    tool: textOf(report.tool),
    args: textOf(report.arguments),
    state,
    ms: typeof report.ms === "number" && state !== "refused" ? report.ms : null,
    code: textOf(report.code),
    result: textOf(report.result),
  };
  // Models may reuse an id in another round: the last call that still runs is meant.
  const place = isStart
    ? -1
    : steps.findLastIndex((one) => one.kind === "tool" && one.id === id && one.state === "running");
  return place < 0 ? [...steps, step] : steps.with(place, step);
}

/** The same once the stream has ended, however it did: no call runs any more. */
export function ended(answered: Answered): Answered {
  const steps = answered.steps.map((one) =>
    one.kind === "tool" && one.state === "running" ? { ...one, state: "open" as const } : one,
  );
  return { ...answered, steps };
}

/** The text of an answer, as the next request has it. */
export function wordsOf({ steps }: Answered): string {
  return steps.flatMap((one) => (one.kind === "text" ? [one.text] : [])).join("\n\n");
}

/** The approval that a call waits for. */
export function approvalOf({ code, result }: ToolStep): string | null {
  if (code !== "mcp_approval_required") return null;
  return /approval `([A-Za-z0-9_-]+)`/.exec(result)?.[1] ?? null;
}

/** What tells one call of a request from the others. */
export interface CallIdentity {
  /** Without the server. */
  readonly tool: string;
  readonly args: string;
  /** Of the calls of this tool in the request. */
  readonly place: number;
}

export function callOf(steps: readonly ChatStep[], step: ToolStep): CallIdentity {
  const alike = steps.filter((one) => one.kind === "tool" && one.tool === step.tool);
  const [, ...name] = step.tool.split(".");
  return { tool: name.join("."), args: step.args, place: alike.indexOf(step) };
}

/** The event of a call: the only one with its arguments, or else the one in its place. `events`: newest first. */
export function eventOf<E extends { readonly arguments: unknown }>(
  events: readonly E[],
  { args, place }: CallIdentity,
): E | undefined {
  const said = jsonIn(args);
  const alike = events.filter((one) => isSame(sorted(one.arguments), sorted(said)));
  return alike.length === 1 ? alike[0] : events.at(-1 - place);
}

/** With its members in one order; arguments are objects, and what is deeper may differ. */
function sorted(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  return Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
}
