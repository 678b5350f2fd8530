import { expect, test } from "vitest";
import { askedState, decidedAs, whyNotApprove } from "./states";

test("a list shows pending approvals unless another known state is requested", () => {
  expect(["", "gone", "denied", "all"].map(askedState)).toEqual(["pending", "pending", "denied", "all"]);
});

test("only the local administrator approves its own calls", () => {
  const asked = { principal: "ada" };
  expect(whyNotApprove(asked, { principal: "ada", by: "key" })).toContain("cannot approve their own calls");
  expect(whyNotApprove(asked, { principal: "bob", by: "key" })).toBeNull();
  expect(whyNotApprove(asked, { principal: "ada", by: "loopback" })).toBeNull();
});

test.each([
  ["webhook", "by webhook"],
  ["webhook:bo", "by webhook"],
  ["key:ci", "elicited"],
  ["key:ada", null],
])("a decision by %s has its words", (decided_by, expected) => {
  expect(decidedAs({ principal: "key:ci", decided_by })).toBe(expected);
});
