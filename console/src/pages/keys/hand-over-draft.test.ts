import { expect, test } from "vitest";
import {
  freeId,
  type HandOverDraft,
  handOverKey,
  handOverProblems,
  idFrom,
  keyIdOf,
  NEW_HAND_OVER,
  pickedTask,
  taskIdOf,
} from "./hand-over-draft";

const KNOWN = { keys: new Set(["ada"]), tasks: new Set(["review"]) };
const BOB: HandOverDraft = { ...NEW_HAND_OVER, who: "Bob", task: "review" };

test("names follow from who gets the key, and never name what exists", () => {
  expect(idFrom(" Zoë O'Hara (CI) ")).toBe("zoe-o-hara-ci");
  expect([idFrom("日本"), idFrom("a".repeat(80)).length]).toEqual(["", 64]);
  expect(freeId("a", new Set(["a", "a-2"]))).toBe("a-3");
  expect(keyIdOf({ ...BOB, who: "Ada" }, KNOWN)).toBe("ada-2");
  expect(taskIdOf({ ...BOB, from: "picks" }, KNOWN)).toBe("bob-tools");
});

test("what is missing is said by field", () => {
  const fields = (draft: HandOverDraft, picked = 0) => Object.keys(handOverProblems(draft, KNOWN, picked));
  expect(fields(BOB)).toEqual([]);
  expect(fields(NEW_HAND_OVER)).toEqual(["who", "task"]);
  expect(fields({ ...BOB, who: "日本" })).toEqual(["keyId"]);
  expect(fields({ ...BOB, keyId: "ada" })).toEqual(["keyId"]);
  expect(fields({ ...BOB, from: "picks" })).toEqual(["task"]);
  expect(fields({ ...BOB, from: "picks", newTask: "review" }, 2)).toEqual(["newTask"]);
});

test("the key is for its task alone, and ends", () => {
  expect(handOverKey(BOB, KNOWN, 1_000_500)).toEqual({
    key_id: "bob",
    role: "agent",
    ceiling: { tasks: ["review"], deny: [] },
    default_task: "review",
    expires_at_s: 1_000 + 30 * 86_400,
    budgets: { calls_per_minute: 60, calls_per_day: 1_000 },
    integrations: "on",
  });
  expect(handOverKey({ ...BOB, days: "" }, KNOWN, 0).expires_at_s).toBeNull();
});

test("a task of picks has their tools and no others", () => {
  expect(pickedTask(" Bob ", ["git.log", "notes.*", "git.a.b"])).toEqual({
    display_name: "Tools for Bob",
    config: {
      "mcp.enabled": true,
      "mcp.default_server_ids": ["git", "notes"],
      "mcp.allowed_server_ids": ["git", "notes"],
      "mcp.tool_allowlist": ["git/a.b", "git/log", "notes/*"],
    },
  });
});
