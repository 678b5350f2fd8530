import { expect, test } from "vitest";
import { isSearching, parseFilters, withFilters } from "./filters";
import { serverOf, toolPath } from "./paths";

test("filters stand in the address, and nothing else is taken out of it", () => {
  const filters = parseFilters(new URLSearchParams("q=read&readOnly=true&other=1"));
  expect(filters).toEqual({ q: "read", category: "", tag: "", server: "", isReadOnly: true });
  const next = withFilters(new URLSearchParams("q=read&readOnly=true&other=1"), { q: "", tag: "a&b" });
  expect(next.toString()).toBe("readOnly=true&other=1&tag=a%26b");
  expect(isSearching(parseFilters(new URLSearchParams("q=%20")))).toBe(false);
  expect(isSearching(parseFilters(next))).toBe(true);
});

test("a tool's address holds its name, whatever that is", () => {
  expect(toolPath("git...")).toBe("/catalog/tool?name=git...");
  expect(serverOf("git.a.b")).toBe("git");
});
