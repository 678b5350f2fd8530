import { expect, test } from "vitest";
import { spansOf } from "./prose";

test("what is in backticks is code, and a backtick alone stays", () => {
  expect(spansOf("no server `git`: run `toolgate up`")).toEqual([
    { text: "no server ", isCode: false },
    { text: "git", isCode: true },
    { text: ": run ", isCode: false },
    { text: "toolgate up", isCode: true },
  ]);
  expect(spansOf("a ` b")).toEqual([{ text: "a ` b", isCode: false }]);
});
