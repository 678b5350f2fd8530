import { expect, test } from "vitest";
import { bodyOf, draftOf, holding, type Profile, rebased, usersOf } from "./draft";

const STORED: Profile = {
  profile_id: "harmless",
  allow: ["get_*"],
  tags: [],
  deny: [],
  environments: { dev: { deny: ["delete_*"] } },
  revision: 3,
};

test("a profile is the same after a round, with lists that are left out left out", () => {
  expect(bodyOf(draftOf(STORED))).toEqual({
    allow: ["get_*"],
    tags: [],
    deny: [],
    environments: { dev: { deny: ["delete_*"] } },
  });
});

test("an environment has its own selection, or the common one", () => {
  const draft = draftOf(STORED);
  expect(holding(draft, "dev").deny).toEqual(["delete_*"]);
  expect(holding(draft, "prod")).toBe(draft.common);
  expect(holding(draft, "unheard of")).toBe(draft.common);
});

test("what was typed in one environment stays, and what others wrote in another comes", () => {
  const draft = draftOf(STORED);
  const mine = { ...draft, environments: { ...draft.environments, prod: draft.common } };
  const theirs = { ...STORED, allow: ["list_*"], environments: {} };
  const after = rebased(mine, STORED, theirs);
  expect(after.common.allow).toEqual(["list_*"]);
  expect(after.environments).toEqual({ dev: null, staging: null, prod: draft.common });
});

test("the tasks that use a profile are those that name it", () => {
  const task = (task_id: string, profile: string) => ({
    task_id,
    display_name: "",
    config: { "mcp.profile": profile },
    revision: 1,
  });
  expect(usersOf("a", [task("x", '"a"'), task("y", '"ab"'), task("z", "a")])).toEqual(["x"]);
});
