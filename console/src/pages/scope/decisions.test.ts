import { describe, expect, test } from "vitest";
import { type Decision, type Filter, filtered, funnelOf, itemsOf, LAYERS, linesOf } from "./decisions";

const REASONS = {
  platform: "not_in_server_allowlist",
  key: "not_allowed_by_key",
  caller: "integration_off",
  task: "denied_by_task",
  request: "not_requested",
} as const;

function decided(name: string, out: Decision["layer"] | null, tokens: number | null = 10): Decision {
  const [server, tool] = name.split("/", 2) as [string, string];
  return {
    server_id: server,
    tool,
    native_name: null,
    allowed: out === null,
    layer: out ?? "platform",
    reason: out === null ? null : REASONS[out],
    rule: "rule",
    tokens,
    approval: null,
    hints: null,
    shadow: null,
  };
}

const ALL: Filter = { show: "all", layer: null, reason: null, text: "" };
const SOME = [
  decided("git/log", null),
  decided("git/push", "task"),
  decided("git/reset", "task"),
  decided("shop/buy", "request"),
  decided("shop/sell", "platform"),
  { ...decided("notes/x", null, null), tool: "prompt:greet" },
];

describe("the funnel", () => {
  test("what enters a layer is what the one before it left", () => {
    const { steps, left } = funnelOf(itemsOf(SOME).filter((one) => one.kind === "tool"));
    expect(steps.map((one) => [one.layer, one.enters.count, one.takes.count, one.takes.tokens])).toEqual([
      ["platform", 5, 1, 10],
      ["key", 4, 0, 0],
      ["task", 4, 2, 20],
      ["request", 2, 1, 10],
    ]);
    expect(left).toEqual({ count: 1, tokens: 10 });
    expect(steps[2]?.reasons).toEqual([{ reason: "denied_by_task", count: 2 }]);
  });

  test("nothing is lost: what is taken and what is left are all there were, whatever was decided", () => {
    for (let seed = 1; seed < 50; seed++) {
      const items = itemsOf(
        Array.from({ length: seed * 3 }, (_, i) =>
          decided(`s${i % 7}/t${i}`, [null, ...LAYERS][(i * seed + (i >> 1)) % 6] ?? null, i),
        ),
      );
      const { steps, left } = funnelOf(items);
      const taken = steps.reduce((sum, one) => sum + one.takes.tokens, 0);
      expect(steps.reduce((sum, one) => sum + one.takes.count, left.count)).toBe(items.length);
      expect(taken + left.tokens).toBe(steps[0]?.enters.tokens);
      expect(left.count).toBe(items.filter((one) => one.decision.allowed).length);
    }
  });
});

test("things have the names that people write", () => {
  const named = itemsOf([
    decided("git/log", null),
    { ...decided("notes/x", null), tool: "prompt:greet" },
    { ...decided("fs/x", null), tool: "resource:file:///a" },
    { ...decided("fs/x", "task"), tool: null },
  ]);
  expect(named.map((one) => [one.kind, one.name, one.label])).toEqual([
    ["tool", "log", "git.log"],
    ["prompt", "greet", "prompt:notes/greet"],
    ["resource", "file:///a", "resource:fs/file:///a"],
  ]);
});

test("filters narrow, and a layer selects what it excludes", () => {
  const items = itemsOf(SOME);
  const names = (filter: Partial<Filter>) => filtered(items, { ...ALL, ...filter }).map((one) => one.name);
  expect(names({ show: "in" })).toEqual(["log", "greet"]);
  expect(names({ show: "out", text: "GIT." })).toEqual(["push", "reset"]);
  expect(names({ layer: "platform" })).toEqual(["sell"]);
  expect(names({ reason: "not_requested" })).toEqual(["buy"]);
  expect(names({ show: "in", layer: "task" })).toEqual([]);
});

test("servers stand above what they have, and may be closed", () => {
  const lines = linesOf(itemsOf(SOME), new Set(["git"]));
  expect(
    lines.map((one) => (one.is === "server" ? `${one.server} ${one.allowed}/${one.total}` : one.item.name)),
  ).toEqual(["git 1/3", "shop 0/2", "buy", "sell", "notes 1/1", "greet"]);
});
