import { expect, test } from "vitest";
import { hasWords } from "./filter-words";

test("all words must be there, in any order and case", () => {
  expect(hasWords("LOG git", "git", "git_log")).toBe(true);
  expect(hasWords("log svn", "git", "git_log")).toBe(false);
  expect(hasWords("  ", "anything")).toBe(true);
});
