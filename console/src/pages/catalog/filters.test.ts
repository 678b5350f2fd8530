import { expect, test } from "vitest";
import { isSearching, parseFilters } from "./filters";
import { serverOf, toolPath } from "./paths";

test("filters are in the address", () => {
  const filters = parseFilters(new URLSearchParams("q=read&readOnly=true&other=1"));
  expect(filters).toEqual({ q: "read", category: "", tag: "", server: "", isReadOnly: true });
  expect(isSearching(parseFilters(new URLSearchParams("q=%20")))).toBe(false);
  expect(isSearching(parseFilters(new URLSearchParams("tag=a%26b")))).toBe(true);
});

test("a tool's address holds its name, whatever that is", () => {
  expect(toolPath("git...")).toBe("/catalog/tool?name=git...");
  expect(serverOf("git.a.b")).toBe("git");
});
