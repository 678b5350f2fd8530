import { expect, test } from "vitest";
import { atShare, bodyOf, draftOf, holding, type Profile, promoted, rebased, usersOf } from "./draft";

const STORED: Profile = {
  profile_id: "harmless",
  version: 2,
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
    version: 2,
  });
});

const ROLLOUT = { version: 3, share: 10, by: "caller" as const, deny: ["x"], environments: {} };

test("a rollout is left as it is by an edit, widened, promoted, and rolled back", () => {
  const rolling: Profile = { ...STORED, rollout: ROLLOUT };
  expect(bodyOf(draftOf(rolling)).rollout).toEqual(ROLLOUT);
  expect(atShare(rolling, 50)).toEqual({ ...bodyOf(draftOf(rolling)), rollout: { ...ROLLOUT, share: 50 } });
  expect(promoted(ROLLOUT)).toEqual({ deny: ["x"], environments: {}, version: 3 });
  expect(atShare(rolling, null)).toEqual(bodyOf(draftOf(STORED)));
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
