import { expect, test } from "vitest";
import { askedFor, type Holder, holderPath, summaryOf } from "./words";

const HOLDER: Holder = {
  kind: "task",
  id: "review",
  calls: 3,
  last_used_ms: 1,
  granted: 4,
  unused: 2,
  unused_tokens: 1_200,
  tools: [],
};

test("the summary names unused tools and their tokens", () => {
  expect(summaryOf(HOLDER)).toBe("2 of 4 granted tools were not used: about 1,200 tokens per list.");
  expect(summaryOf({ ...HOLDER, unused: 1, unused_tokens: 1 })).toBe(
    "1 of 4 granted tools was not used: about 1 token per list.",
  );
});

test("the summary says when all, none or no tools were used", () => {
  expect(summaryOf({ ...HOLDER, unused: 4 })).toBe(
    "None of the 4 granted tools was used: about 1,200 tokens per list.",
  );
  expect(summaryOf({ ...HOLDER, unused: 0 })).toBe("All 4 granted tools were used.");
  expect(summaryOf({ ...HOLDER, granted: 0, unused: 0 })).toBe("No tools granted.");
});

test("a name leads to its own page, with the time range that was chosen", () => {
  expect(holderPath({ kind: "key", id: "a/b" }, "30d")).toBe("/unused/key/a%2Fb?range=30d");
  expect(holderPath(HOLDER, "7d")).toBe("/unused/task/review?range=7d");
});

test("tasks are looked at unless something else is asked for", () => {
  expect([askedFor(null), askedFor("key"), askedFor("other")]).toEqual(["task", "key", "task"]);
});
