import { expect, test } from "vitest";
import type { Shapes } from "@/api/client";
import { byState, savings, tokenBars, totals } from "./numbers";

const server = (state: string | null, nodes: string[] = []) =>
  ({
    health: state && { state },
    nodes: nodes.map((one) => ({ state: one })),
  }) as unknown as Shapes["ServerShown"];

test("servers are counted by what is known here, else by the worst that a node reports", () => {
  const servers = [server("connected"), server("down"), server(null, ["connected", "down"]), server(null)];
  expect(byState(servers)).toEqual([
    ["connected", 1],
    ["starting", 0],
    ["degraded", 0],
    ["down", 2],
    ["idle", 0],
    ["disabled", 0],
    [undefined, 1],
  ]);
  expect(byState([server("idle")]).map(([state]) => state)).not.toContain(undefined);
});

test("what a task spares is told against all there is, and refused tasks spare nothing", () => {
  const task = (task_id: string, tokens: number, refusal: unknown = null) => ({
    task_id,
    tools: 1,
    tokens,
    refusal,
  });
  const overview = {
    registered_tokens: 1000,
    tasks: [task("b", 900), task("a", 10), task("refused", 0, { code: "x" })],
  } as unknown as Shapes["OverviewResponse"];
  expect(savings(overview).map((one) => [one.taskId, one.percent])).toEqual([
    ["a", 99],
    ["b", 10],
  ]);
});

test("nothing registered, nothing saved", () => {
  const overview = { registered_tokens: 0, tasks: [{ task_id: "a", tools: 0, tokens: 0, refusal: null }] };
  expect(savings(overview as unknown as Shapes["OverviewResponse"])[0]?.percent).toBe(0);
});

test("buckets add up", () => {
  const buckets = [
    { at_ms: 0, calls: 2, errors: 1, denials: 0, pending: 1 },
    { at_ms: 1, calls: 3, errors: 0, denials: 4, pending: 0 },
  ];
  expect(totals({ buckets } as Shapes["Activity"])).toEqual({
    calls: 5,
    errors: 1,
    denials: 4,
    pending: 1,
  });
});

test("tokens have a bar for each day, and what costs more than all there is saves nothing", () => {
  const found = {
    since: "2026-02-27",
    until: "2026-03-01",
    days: [
      { day: "2026-02-27", definition_tokens: 4, saved_tokens: 9 },
      { day: "2026-03-01", definition_tokens: 5, saved_tokens: -1 },
    ],
  } as Shapes["TokensResponse"];
  expect(tokenBars(found).map((one) => one.counts)).toEqual([
    [4, 9],
    [0, 0],
    [5, 0],
  ]);
});
