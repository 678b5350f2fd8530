import { expect, test } from "vitest";
import {
  endOfDay,
  type KeyDraft,
  keyBody,
  keyProblems,
  NEW_KEY,
  nearness,
  reachOf,
  taskOf,
} from "./key-draft";

const CI: KeyDraft = {
  ...NEW_KEY,
  keyId: " ci ",
  tasks: ["review"],
  servers: null,
  allow: [],
  deny: ["*delete*"],
  defaultTask: "review",
  lastDay: "2030-01-31",
  budgets: { calls_per_day: 100 },
};

test("a list that is left out is not an empty one, which lets nothing pass", () => {
  expect(keyBody(CI)).toEqual({
    key_id: "ci",
    role: "agent",
    ceiling: { tasks: ["review"], servers: null, allow: [], deny: ["*delete*"] },
    default_task: "review",
    expires_at_s: new Date(2030, 0, 31, 23, 59, 59).getTime() / 1000,
    budgets: { calls_per_day: 100 },
    integrations: "on",
  });
});

test("a new key is an agent without bounds that does not expire", () => {
  const body = keyBody({ ...NEW_KEY, keyId: "a" });
  expect(body.ceiling).toEqual({ tasks: null, servers: null, allow: null, deny: [] });
  expect([body.role, body.default_task, body.expires_at_s]).toEqual(["agent", null, null]);
});

test("what cannot be meant is told before it is sent", () => {
  const now = endOfDay("2029-12-31") * 1000;
  expect(keyProblems(CI, now)).toEqual({});
  expect(Object.keys(keyProblems(NEW_KEY, now))).toEqual(["keyId"]);
  expect(Object.keys(keyProblems({ ...CI, lastDay: "2029-12-30" }, now))).toEqual(["lastDay"]);
  expect(Object.keys(keyProblems({ ...CI, defaultTask: "other" }, now))).toEqual(["defaultTask"]);
});

test("a key's ceiling is said in words", () => {
  expect(reachOf({ deny: [] })).toBe("no ceiling: everything");
  expect(reachOf({ tasks: null, servers: null, allow: null, deny: ["x"] })).toBe(
    "everything, but never tools that match x",
  );
  expect(reachOf({ tasks: ["a", "b"], servers: [], allow: ["git/*"], deny: ["x", "y"] })).toBe(
    "only tasks a and b; no servers; only tools that match git/*; never tools that match x or y",
  );
  expect(reachOf({ tasks: ["a"], deny: [] })).toBe("only task a");
});

test("a key that ends within a week is near its end", () => {
  const now = 1_000_000_000;
  const inDays = (days: number) => nearness(1_000_000 + days * 86_400, now);
  expect([nearness(null, now), inDays(8), inDays(6), inDays(0)]).toEqual(["never", "later", "soon", "over"]);
});

test("the task of a key's clients is its default, or the first that it may use", () => {
  expect(taskOf({ default_task: "b", ceiling: { tasks: ["a", "b"], deny: [] } })).toBe("b");
  expect(taskOf({ ceiling: { tasks: ["a"], deny: [] } })).toBe("a");
  expect(taskOf({ ceiling: { deny: [] } })).toBe("");
});
