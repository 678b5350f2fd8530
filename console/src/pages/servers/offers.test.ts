import { expect, test } from "vitest";
import { filterOffers, type Preview, toOffers } from "./offers";

const PREVIEW: Preview = {
  revision: 1,
  server_id: "git",
  state: "ready",
  is_stale: false,
  tokens: 5,
  tools: [
    {
      tool: "log",
      name: "git.log",
      chat_name: "mcp__git__log",
      description: "Shows commits.",
      digest: "d",
      tokens: 5,
      effects: [],
      allowed: true,
      layer: "platform",
      reason: null,
      rule: "allowed_tools",
    },
  ],
  others: [
    {
      server_id: "git",
      tool: "prompt:review",
      native_name: null,
      allowed: false,
      layer: "platform",
      reason: "not_in_server_allowlist",
      rule: "allowed_tools",
      tokens: null,
      approval: null,
      hints: null,
      shadow: null,
    },
  ],
};

test("tools, prompts and resources are rows alike", () => {
  expect(toOffers(PREVIEW).map((one) => [one.tool, one.chatName, one.allowed])).toEqual([
    ["log", "mcp__git__log", true],
    ["prompt:review", "", false],
  ]);
});

test.each([
  ["", false, ["log", "prompt:review"]],
  ["COMMITS", false, ["log"]],
  ["git__log", false, ["log"]],
  ["", true, ["prompt:review"]],
  ["log", true, []],
])("%j, only those left out: %j, finds %j", (text, isOut, found) => {
  expect(filterOffers(toOffers(PREVIEW), text, isOut).map((one) => one.tool)).toEqual(found);
});
