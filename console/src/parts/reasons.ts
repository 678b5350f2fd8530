/** Reasons and rules, as the gateway gives them, in the words of people. */
import type { Shapes } from "@/api/client";

type Reason = NonNullable<Shapes["DecisionShown"]["reason"]>;

interface ReasonWords {
  readonly title: string;
  readonly todo: string;
}

export const REASON_WORDS: Readonly<Record<Reason, ReasonWords>> = {
  unknown_server: {
    title: "there is no such server",
    todo: "Register the server, or correct the name.",
  },
  server_disabled: { title: "its server is disabled", todo: "Enable the server." },
  not_requested: {
    title: "the request is for other servers",
    todo: "Add its server to the servers of the request, or to those the task starts with.",
  },
  not_allowed_by_key: {
    title: "outside the key's ceiling",
    todo: "Use another key, or make one that reaches further.",
  },
  integration_off: {
    title: "the caller has its server switched off",
    todo: "The caller switches it on under Integrations, or with toolgate integrations on.",
  },
  integration_read_only: {
    title: "the caller has its server on for read-only tools",
    todo: "The caller switches on all its tools under Integrations, or with toolgate integrations on --all.",
  },
  not_allowed_by_task: {
    title: "the task does not have its server",
    todo: "Allow the server in the task; the rule says which list decided.",
  },
  deny_all: {
    title: "its server allows no tools at all",
    todo: "Add patterns to the server's allowed tools; * stands for all.",
  },
  env_missing: {
    title: "its server lacks a variable or secret",
    todo: "Set the variable or secret that the server refers to, and start the gateway again.",
  },
  list_timeout: { title: "its server did not answer in time", todo: "Test the server." },
  list_failed: { title: "its server could not be started or listed", todo: "Test the server." },
  not_in_server_allowlist: {
    title: "not among the tools its server allows",
    todo: "Add a pattern to the server's allowed tools.",
  },
  not_in_task_allowlist: {
    title: "not in the allowlist of the task",
    todo: "Add a pattern to the list that the rule names.",
  },
  denied_by_task: { title: "denied by the task", todo: "Take the pattern off the list that the rule names." },
  not_in_request_allowlist: {
    title: "the request asks for other tools",
    todo: "Add it to the tools of the request, or leave the profile of the request out.",
  },
  denied_by_request: { title: "denied by the request", todo: "Use another profile in the request." },
  quarantined: {
    title: "not the definition that was approved",
    todo: "Look at what changed, and approve it if it is right.",
  },
  invalid_definition: {
    title: "its definition is not valid",
    todo: "Mend the server; the rule says what is wrong.",
  },
  approval_required: {
    title: "a person has to approve each call",
    todo: "Nothing: it is listed, and asked about when called.",
  },
};

/** The names of rules, as `policy` writes them, each with what people call it. */
const RULES: readonly [RegExp, string][] = [
  [/^enabled$/, "the server's switch"],
  [/^allowed_tools/, "the tools its server allows"],
  [/^key tasks/, "the tasks of the key"],
  [/^key servers/, "the servers of the key"],
  [/^key allow/, "the allowlist of the key"],
  [/^key deny/, "the denylist of the key"],
  [/^integrations: /, "what the caller switched on for itself"],
  [/^mcp\.enabled/, "the task's switch"],
  [/^mcp\.allowed_server_ids/, "the servers the task allows"],
  [/^mcp\.default_server_ids/, "the servers the task starts with"],
  [/^mcp\.tool_allowlist/, "the allowlist of the task"],
  [/^mcp\.tool_denylist/, "the denylist of the task"],
  [/^mcp\.tags/, "the tags of the task"],
  [/^mcp\.approval_policy/, "the approval policy of the task"],
  [/^approval_policy/, "the approval policy of its server"],
  [/^mcp\.profile_overrides server_ids/, "the servers that the task's overrides leave"],
  [/^mcp\.profile_overrides tags/, "the tags that the task's overrides leave"],
  [/^mcp\.profile_overrides tool_allowlist/, "the allowlist of the task's overrides"],
  [/^mcp\.profile_overrides tool_denylist/, "the denylist of the task's overrides"],
  [/^mcp\.profile `[^`]*`( version [^)]*\))? servers/, "the servers of the task's profile"],
  [/^mcp\.profile `[^`]*`( version [^)]*\))? tags/, "the tags of the task's profile"],
  [/^mcp\.profile `[^`]*`( version [^)]*\))? allow/, "the allowlist of the task's profile"],
  [/^mcp\.profile `[^`]*`( version [^)]*\))? deny/, "the denylist of the task's profile"],
  [/^mcp\.profile/, "the profile of the task"],
  [/^\?servers=/, "the servers of the request"],
  [/^\?tools=/, "the tools of the request"],
  [/^\?profile= `[^`]*`( version [^)]*\))? deny/, "the denylist of the request's profile"],
  [/^\?profile=/, "the profile of the request"],
  [/^request denied/, "the whole request was denied"],
  [/^pin: not approved/, "its server is pinned, and nobody approved this tool"],
  [/^pin: its definition changed/, "it changed after it was approved"],
  [/^pin: /, "its server is pinned to another definition"],
  [/^(tool )?definition: /, "the definition that its server sent"],
  [/^registry$/, "what is registered"],
];

/** What people call a rule; empty where only its own text will do. */
export function ruleInWords(rule: string): string {
  return RULES.find(([like]) => like.test(rule))?.[1] ?? "";
}
