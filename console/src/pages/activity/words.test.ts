import { expect, test } from "vitest";
import { colourOf, detailsOf, type Event, lensOn, peopleOf, resultOf, subjectOf, tookMs } from "./words";

const event = (members: Partial<Event>) =>
  ({ duration_us: null, duration_ms: null, revision: null, tool: null, task_id: null, ...members }) as Event;

test.each([
  [event({ type: "call", tool: "git.log", outcome: "denied" }), "git.log", "denied", "yellow"],
  [event({ type: "call", server_id: "git", tool: "log", outcome: "ok" }), "git.log", "succeeded", "green"],
  [
    event({ type: "admin", operation: "put", kind: "task", record_id: "ops", revision: 7 }),
    "changed task ops",
    "revision 7",
    "blue",
  ],
  [
    event({ type: "approval", server_id: "git", tool: "push", state: "asked" }),
    "git.push",
    "requested",
    "blue",
  ],
  [
    event({ type: "call", tool: "git.push", outcome: "denied", code: "mcp_approval_required" }),
    "git.push",
    "pending approval",
    "blue",
  ],
  [event({ type: "call", tool: "git.log", outcome: "tool_error" }), "git.log", "tool error", "orange"],
  [event({ type: "definition", server_id: "git", tool: "push" }), "git.push", "changed", "yellow"],
  [event({ type: "credential", peer: "10.0.0.9" }), "credential from 10.0.0.9", "rejected", "red"],
  [event({ type: "invocation", task_id: "night", state: "failed" }), "run of night", "failed", "red"],
  [event({ type: "spawn", server_id: "git", reason: "start" }), "process of git", "started", "blue"],
  [event({ type: "spawn", server_id: "git", reason: "trial" }), "process of git", "tested", "blue"],
  [event({ type: "scope", tools: 3, servers: 2, excluded: 0 }), "3 tools of 2 servers", "listed", "blue"],
  [
    event({ type: "session", tool_calls: 3, rounds: 0, door: "mcp", ended_by: "idle" }),
    "3 calls, 0 rounds at mcp",
    "ended: idle",
    "blue",
  ],
  [
    event({ type: "scope", tools: 3, servers: 2, excluded: 4 }),
    "3 tools of 2 servers",
    "listed, 4 excluded",
    "blue",
  ],
  [event({ type: "call", tool: "git.log", outcome: "unknown" }), "git.log", "result unknown", "red"],
])("each type says what was done and what came of it", (one, subject, result, colour) => {
  expect([subjectOf(one), resultOf(one), colourOf(one)]).toEqual([subject, result, colour]);
});

test("how long it took is told in milliseconds", () => {
  expect(tookMs(event({ duration_us: 1500 }))).toBe(1.5);
  expect(tookMs(event({ duration_ms: 20 }))).toBe(20);
  expect(tookMs(event({}))).toBeNull();
});

test("a call leads to the lens, asking why", () => {
  expect(lensOn(event({ type: "call", tool: "a.b", task_id: "t" }))).toBe("/scope?why=a.b&task=t");
  expect(lensOn(event({ type: "admin" }))).toBeNull();
});

test("what an event does not say is not listed", () => {
  expect(
    detailsOf(event({ event_id: "1", type: "call", tool: "a.b", code: "", arguments: { a: 1 } })),
  ).toEqual([
    ["tool", "a.b"],
    ["type", "call"],
  ]);
});

test("an approval says who asked and who decided, and neither is taken for the other", () => {
  const approval = event({ type: "approval", state: "approved", principal: "key:ci", decided_by: "key:ada" });
  expect(peopleOf(approval)).toEqual([
    ["Asked by", "key:ci"],
    ["Decided by", "key:ada"],
  ]);
  expect(
    peopleOf(event({ type: "approval", state: "asked", principal: "key:ci", decided_by: null })),
  ).toEqual([["Asked by", "key:ci"]]);
  expect(peopleOf(event({ type: "call", principal: "key:ci" }))).toEqual([["Called by", "key:ci"]]);
});
