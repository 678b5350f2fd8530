import { expect, test } from "vitest";
import { askedState, decidedAs, whyNotApprove } from "./states";

test("a list is of those that wait, unless a state is asked for that there is", () => {
  expect([null, "", "gone", "denied", "all"].map(askedState)).toEqual([
    "pending",
    "pending",
    "pending",
    "denied",
    "all",
  ]);
});

test("nobody approves a call of its own but the local administrator", () => {
  const asked = { principal: "ada" };
  expect(whyNotApprove(asked, { principal: "ada", by: "key" })).toContain("Nobody approves");
  expect(whyNotApprove(asked, { principal: "bob", by: "key" })).toBeNull();
  expect(whyNotApprove(asked, { principal: "ada", by: "loopback" })).toBeNull();
});

test.each([
  ["webhook", "through the webhook"],
  ["webhook:bo", "through the webhook"],
  ["key:ci", "who called"],
  ["key:ada", null],
])("a decision by %s is told as what it was", (decided_by, expected) => {
  expect(decidedAs({ principal: "key:ci", decided_by })).toBe(expected);
});
