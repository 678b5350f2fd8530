import { expect, test } from "vitest";
import { actions, matching, pages, recordEntries } from "./palette-entries";

const servers = recordEntries("Server", "/servers", [
  ["git", "Git"],
  ["a/b", "Odd"],
]);

test("the best match is first, and what was typed can be searched for", () => {
  const found = matching([...pages("admin"), ...actions("admin"), ...servers], "git");
  expect(found.map((one) => `${one.kind}: ${one.path}`)).toEqual([
    "Server: /servers/git",
    "Search: /catalog?q=git",
    "Why: /scope?why=git",
    "Search: /activity?tool=git",
  ]);
});

test("callers find only what their role may open", () => {
  const found = matching([...pages("agent"), ...actions("agent")], "", true);
  expect(found.map((one) => one.path)).not.toContain("/keys");
  expect(matching([], "git", true).map((one) => one.path)).not.toContain("/activity?tool=git");
});

test("an ID cannot lead elsewhere", () => {
  expect(servers.map((one) => one.path)).toEqual(["/servers/git", "/servers/a%2Fb"]);
});
