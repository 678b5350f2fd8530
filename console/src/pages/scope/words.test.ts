import { expect, test } from "vitest";
import { type Decision, LAYERS } from "./decisions";
import { placeToChange, sayOf } from "./words";

const OUT: Decision = {
  server_id: "git",
  tool: "push",
  native_name: null,
  allowed: false,
  layer: "task",
  reason: "denied_by_task",
  rule: "mcp.tool_denylist `push`",
  tokens: 1,
  approval: null,
  hints: null,
  shadow: null,
};

test("the layers before the one that excludes allow it, those after it are not evaluated", () => {
  expect(LAYERS.map((layer) => sayOf(layer, OUT, false).says)).toEqual(["yes", "yes", "yes", "no", "idle"]);
  expect(sayOf("key", OUT, true).words).toBe("does not exclude its server.");
  const seen: Decision = { ...OUT, allowed: true, reason: null };
  expect(LAYERS.map((layer) => sayOf(layer, seen, false).says)).toEqual(["yes", "yes", "yes", "yes", "yes"]);
});

test.each<[Partial<Decision>, string | null]>([
  [{}, "/tasks/review"],
  [{ rule: "mcp.profile `a b` deny" }, "/profiles/a%20b"],
  [{ layer: "platform", reason: "quarantined" }, "/pins/git"],
  [{ layer: "platform", reason: "server_disabled" }, "/servers/git"],
  [{ layer: "platform", reason: "unknown_server" }, "/servers"],
  [{ layer: "key", reason: "not_allowed_by_key" }, "/keys"],
  [{ layer: "request", reason: "not_requested" }, null],
])("%j is changed at %s", (part, path) => {
  expect(placeToChange({ ...OUT, ...part }, "review")?.path ?? null).toBe(path);
});
