import { expect, test } from "vitest";
import {
  type Answered,
  approvalOf,
  callOf,
  ended,
  eventOf,
  NOTHING,
  type ToolStep,
  withEvent,
  wordsOf,
} from "./chat-events";

const told = (...chunks: object[]): Answered =>
  chunks.reduce((before: Answered, one) => withEvent(before, JSON.stringify(one)), NOTHING);
const text = (content: string) => ({ choices: [{ delta: { content } }] });
const report = (toolgate: object) => ({ choices: [], toolgate });

test("text and calls are steps in their order, and a call is updated where it is", () => {
  const found = told(
    text("I "),
    text("look."),
    report({ event: "tool_started", tool: "git.git_log", call_id: "a", arguments: '{"n":1}' }),
    report({ event: "tool_started", tool: "git.git_diff", call_id: "b", arguments: "{}" }),
    report({
      event: "tool_finished",
      tool: "git.git_log",
      call_id: "a",
      ok: true,
      ms: 12,
      code: "",
      result: "x",
    }),
    report({ event: "tool_refused", tool: "nope", call_id: "c", ok: false, ms: 0, code: "unknown_tool" }),
    text("\n\n"),
    text("Done."),
    { ...text(""), toolgate: { stopped: "round_limit", warnings: ["careful"] } },
    { choices: [], usage: { prompt_tokens: 9, completion_tokens: 2 } },
  );
  expect(found.steps.map((one) => (one.kind === "text" ? one.text : [one.tool, one.state, one.ms]))).toEqual([
    "I look.",
    ["git.git_log", "ok", 12],
    ["git.git_diff", "running", null],
    ["nope", "refused", null],
    "Done.",
  ]);
  expect(found).toMatchObject({
    cost: { input: 9, output: 2 },
    stopped: "round_limit",
    warnings: ["careful"],
  });
  expect(wordsOf(found)).toBe("I look.\n\nDone.");
  expect((ended(found).steps[2] as ToolStep).state).toBe("open");
});

test("an id that a model uses again in a later round is another call", () => {
  const start = report({ event: "tool_started", tool: "a.b", call_id: "0", arguments: "{}" });
  const end = report({ event: "tool_finished", tool: "a.b", call_id: "0", ok: true, ms: 1 });
  expect(told(start, end, start).steps.map((one) => (one as ToolStep).state)).toEqual(["ok", "running"]);
});

test("an error in a stream is thrown as the gateway says it", () => {
  expect(() => told({ error: { message: "gone", code: "model_unavailable" } })).toThrow("gone");
  expect(withEvent(NOTHING, "[DONE]")).toBe(NOTHING);
});

test("the approval that a call waits for is found in its result", () => {
  const step = {
    code: "mcp_approval_required",
    result: "… first: approval `apr_1-x` is pending",
  } as ToolStep;
  expect(approvalOf(step)).toBe("apr_1-x");
  expect(approvalOf({ ...step, code: "tool_error" })).toBeNull();
});

test("the record of a call is the one with its arguments, or in its place", () => {
  const step = (args: string) => ({ kind: "tool", tool: "git.log.x", args }) as ToolStep;
  const steps = [step('{"a":1,"b":2}'), step("{}"), step('{"b":"secret"}')];
  const [first, second, third] = steps.map((one) => callOf(steps, one));
  const events = [{ arguments: { b: "***" } }, { arguments: {} }, { arguments: { b: 2, a: 1 } }];
  expect(first?.tool).toBe("log.x");
  expect([first, second, third].map((one) => one && eventOf(events, one))).toEqual([
    events[2],
    events[1],
    events[0],
  ]);
});
