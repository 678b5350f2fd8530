import { expect, test } from "vitest";
import { bodyOf, type Draft, draftOf, otherKeys, rebased, type Task } from "./draft";

const STORED: Task = {
  task_id: "support",
  display_name: "Support",
  config: {
    "mcp.enabled": "true",
    "mcp.default_server_ids": '[ "notes" ]',
    "mcp.allowed_server_ids": '["notes", "shop"]',
    "mcp.tool_allowlist": "[]",
    "mcp.profile": '"harmless"',
    "mcp.profile_overrides": '{"tool_denylist": ["quote_cart"]}',
    "mcp.approval_policy": '"policy"',
    "chat.mode": '"inject"',
    "chat.budgets": '{"max_iterations": 3}',
    "team.owner": '"ops"',
  },
  workload: null,
  revision: 4,
};

test("unedited values keep their exact text, and unknown keys are kept", () => {
  expect(bodyOf(draftOf(STORED), STORED).config).toEqual(STORED.config);
  expect(otherKeys(STORED)).toEqual(["team.owner"]);
});

test("an empty list and one left out are two things", () => {
  const draft = draftOf(STORED);
  expect(draft.allow).toEqual([]);
  expect(draft.tags).toBeNull();
  expect("mcp.tool_allowlist" in bodyOf({ ...draft, allow: null }, STORED).config).toBe(false);
  expect(bodyOf({ ...draft, tags: [] }, STORED).config["mcp.tags"]).toBe("[]");
});

const CHANGES: Partial<Draft>[] = [
  { display_name: "Other" },
  { isEnforced: false },
  { requiresServers: true },
  { isInPlace: false, spending: { calls_per_minute: 3, tokens_per_day: 900 } },
  { isEnabled: false },
  { picks: { default: ["shop"], allowed: null } },
  { picks: { default: null, allowed: ["git"] } },
  { allow: ["git_*"], deny: ["git_push"] },
  { profile: null },
  { overrides: { server_ids: ["git"], tags: null, tool_allowlist: [], tool_denylist: null } },
  { overrides: { server_ids: null, tags: null, tool_allowlist: null, tool_denylist: null } },
  { tags: ["a"], approval: "always" },
  { mode: null, budgets: {} },
  { budgets: { max_iterations: 0, wall_clock_ms: 5000 } },
];

test.each(CHANGES)("what is changed is what is read again: %j", (part) => {
  const draft = { ...draftOf(STORED), ...part };
  expect(draftOf({ ...STORED, ...bodyOf(draft, STORED) })).toEqual(draft);
});

test("text that cannot be read stays until its field is changed", () => {
  const broken: Task = { ...STORED, config: { "mcp.tags": "{", "mcp.profile": "3" } };
  const draft = draftOf(broken);
  expect([draft.tags, draft.profile]).toEqual([null, null]);
  expect(bodyOf(draft, broken).config).toEqual(broken.config);
  expect(bodyOf({ ...draft, tags: ["a"] }, broken).config).toEqual({
    "mcp.tags": '["a"]',
    "mcp.profile": "3",
  });
});

test("edited fields stay when someone else changes the record", () => {
  const draft = { ...draftOf(STORED), display_name: "Mine" };
  const theirs: Task = {
    ...STORED,
    display_name: "Theirs",
    config: { ...STORED.config, "mcp.tags": '["new"]' },
  };
  const after = rebased(draft, STORED, theirs);
  expect([after.display_name, after.tags]).toEqual(["Mine", ["new"]]);
});
