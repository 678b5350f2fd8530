import { expect, test } from "vitest";
import { afterReset, firstTask, type Integration, loginState, matching } from "./switches";

const GIT: Integration = {
  server_id: "git",
  display_name: "Source code",
  state: "on",
  chosen: true,
  tools: 3,
  read_only_tools: 1,
  writing_tools: 2,
  needs_login: false,
  login: null,
};

test("servers are found by id and by name", () => {
  const all = [GIT, { ...GIT, server_id: "mail", display_name: "" }];
  const found = (text: string) => matching(all, text).map((one) => one.server_id);
  expect([found(""), found("SOURCE"), found(" mai "), found("x")]).toEqual([
    ["git", "mail"],
    ["git"],
    ["mail"],
    [],
  ]);
});

test("what is reset is as the key has it", () => {
  expect(afterReset(GIT, "off")).toEqual({ ...GIT, state: "off", chosen: false });
});

test("a login is in, over or out; one that is renewed does not end", () => {
  const of = (expires_at_s: number | null, renews = false) =>
    loginState({ needs_login: true, login: { issuer: "i", expires_at_s, renews } }, 2_000);
  expect([of(null), of(3), of(1), of(1, true)]).toEqual(["in", "in", "over", "in"]);
  expect(loginState(GIT, 0)).toBe("none");
  expect(loginState({ needs_login: true, login: null }, 0)).toBe("out");
});

test("the task is that of the URL, of the key, or the first that the key may use", () => {
  const ceiling = { tasks: ["a", "b"], servers: null, allow: null, deny: [] };
  expect(firstTask("c", { default_task: "b", ceiling })).toBe("c");
  expect(firstTask(null, { default_task: "b", ceiling })).toBe("b");
  expect(firstTask(null, { default_task: null, ceiling })).toBe("a");
  expect(firstTask(null, { default_task: null, ceiling: { ...ceiling, tasks: null } })).toBe("");
});
