import { expect, test } from "vitest";
import { afterReset, type Integration, matching } from "./switches";

const GIT: Integration = {
  server_id: "git",
  display_name: "Source code",
  state: "on",
  chosen: true,
  tools: 3,
  read_only_tools: 1,
  writing_tools: 2,
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
