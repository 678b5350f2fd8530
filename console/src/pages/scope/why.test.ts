import { expect, test } from "vitest";
import { type Decision, itemsOf } from "./decisions";
import { findWhy, nearest, resourceIn, serverIn } from "./why";

function decision(server_id: string, tool: string | null): Decision {
  return {
    server_id,
    tool,
    native_name: null,
    allowed: false,
    layer: "task",
    reason: "denied_by_task",
    rule: "r",
    tokens: 1,
    approval: null,
    hints: null,
    shadow: null,
  };
}

const ITEMS = itemsOf([
  decision("git", "git_log"),
  decision("git", "git_push"),
  decision("shop", "buy"),
  decision("store", "buy"),
  decision("notes", "prompt:greet"),
  decision("fs", "resource:file:///a"),
]);

test.each([
  ["git.git_log", "git.git_log"],
  ["git/git_log", "git.git_log"],
  ["mcp__git__git_log", "git.git_log"],
  ["mcp.git.git_log", "git.git_log"],
  [" git_log ", "git.git_log"],
  ["shop.buy", "shop.buy"],
  ["greet", "prompt:notes/greet"],
  ["prompt:notes/greet", "prompt:notes/greet"],
  ["notes.prompt:greet", "prompt:notes/greet"],
  ["resource:fs/file:///a", "resource:fs/file:///a"],
  ["file:///a", "resource:fs/file:///a"],
])("%s means one thing", (text, label) => {
  const found = findWhy(text, ITEMS);
  expect(found.is === "one" && found.item.label).toBe(label);
});

test("a name that several have, or a part of names, lists them", () => {
  const both = findWhy("buy", ITEMS);
  expect(both.is === "several" && both.items.map((one) => one.label)).toEqual(["shop.buy", "store.buy"]);
  const part = findWhy("GIT.", ITEMS);
  expect(part.is === "several" && part.total).toBe(2);
});

test("what does not exist says so, with names that come near and what became of the server", () => {
  const found = findWhy("git.git_lgo", ITEMS, [decision("git", null)]);
  expect(found.is).toBe("none");
  expect(found.is === "none" && found.near[0]).toBe("git.git_log");
  expect(found.is === "none" && found.server?.server_id).toBe("git");
  expect(findWhy("nothing_like_it_at_all", ITEMS)).toEqual({ is: "none", server: null, near: [] });
});

test("ten thousand names are looked through at once", () => {
  const many = itemsOf(
    Array.from({ length: 10_000 }, (_, i) => decision(`server${i % 500}`, `tool_number_${i}`)),
  );
  expect(nearest("server3.tool_numbr_1003", many)[0]).toBe("server3.tool_number_1003");
});

test("the server is what a name begins with", () => {
  expect(["git.log", "mcp__git__log", "prompt:git/x", "git/log", "git"].map(serverIn)).toEqual(
    Array(5).fill("git"),
  );
  expect(resourceIn("resource:fs/file:///b")).toEqual({ server: "fs", tool: "resource:file:///b" });
  expect(resourceIn("resource:file:///b")).toBeNull();
});
