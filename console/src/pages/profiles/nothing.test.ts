import { expect, test } from "vitest";
import { whyNothing } from "./nothing";

const SEEN = { profile_id: "reading", tools: 0, unlisted: [] };

test("servers that have not listed their tools are named before the lists are blamed", () => {
  expect(whyNothing({ ...SEEN, unlisted: ["billing"] })).toEqual({
    reason: "`billing` has not listed tools.",
    todo: { title: "Open billing", path: "/servers/billing" },
  });
  expect(whyNothing({ ...SEEN, unlisted: ["a", "b", "c"] })?.reason).toBe(
    "`a` and 2 more have not listed tools.",
  );
  expect(whyNothing(SEEN)?.todo.path).toBe("/profiles/reading/edit");
  expect(whyNothing({ ...SEEN, tools: 1, unlisted: ["a"] })).toBeNull();
});
