import { describe, expect, it } from "vitest";
import { allowedFor, byRisk, patternOf, ticksOf, usualTicks } from "./choice";

const tool = (name: string, ...effects: string[]) => ({ name, description: "", tokens: 1, effects });
const TOOLS = [
  tool("drop", "destructive"),
  tool("write"),
  tool("read", "read_only"),
  tool("get_a", "read_only"),
];
const names = (tools: readonly { name: string }[]) => tools.map((one) => one.name);

describe("what is offered", () => {
  it("has read-only tools first and ticked, and never a destructive one", () => {
    expect(names(byRisk(TOOLS))).toEqual(["get_a", "read", "write", "drop"]);
    expect(usualTicks(TOOLS)).toEqual(new Set(["read", "get_a"]));
  });

  it("keeps patterns that still say what is ticked, and replaces those that allow more", () => {
    const at = (...patterns: string[]) => ({ serverId: "s", patterns });
    expect(allowedFor(new Set(["read"]), TOOLS, at())).toEqual(["read"]);
    expect(allowedFor(new Set(["read", "get_a", "write"]), TOOLS, at("@read_only"))).toEqual([
      "@read_only",
      "write",
    ]);
    expect(allowedFor(new Set(["read"]), TOOLS, at("*", "prompt:*"))).toEqual(["prompt:*", "read"]);
    expect(allowedFor(new Set(["read"]), TOOLS, at("s/get_*", "r?ad"))).toEqual(["r?ad"]);
    expect(allowedFor(new Set(names(TOOLS)), TOOLS, at("*"))).toEqual(["*"]);
    expect(allowedFor(new Set(), TOOLS, at("other/*", "*"))).toEqual(["other/*"]);
  });

  it("reads ticks back from patterns", () => {
    expect(ticksOf(["@destructive", "s/get_*", "t/write"], "s", TOOLS)).toEqual(new Set(["drop", "get_a"]));
  });

  it("names tools that look like other patterns", () => {
    expect(["a", "@a", "a/b", "prompt:a"].map(patternOf)).toEqual(["a", "?a", "*/a/b", "*/prompt:a"]);
  });
});
