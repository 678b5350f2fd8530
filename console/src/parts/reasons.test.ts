import { expect, test } from "vitest";
import { ruleInWords } from "./reasons";

test.each([
  ["mcp.tool_denylist `push`", "the denylist of the task"],
  ["mcp.profile `harmless` allow `get_*`", "the allowlist of the task's profile"],
  ["mcp.profile `p` version 5 (candidate) deny `x`", "the denylist of the task's profile"],
  ["mcp.profile_overrides tool_denylist `x`", "the denylist of the task's overrides"],
  ["?profile= `p` deny `x`", "the denylist of the request's profile"],
  ["allowed_tools `*`", "the allowed tools of its server"],
  ["mcp.approval_policy: always", "the approval policy of the task"],
  ["approval_policy per_tool `delete_*`: always", "the approval policy of its server"],
  ["something new", ""],
])("the rule %s has words", (rule, words) => expect(ruleInWords(rule)).toBe(words));
