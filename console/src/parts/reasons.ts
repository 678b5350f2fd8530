/** Words for the gateway's reasons and rules. */
import type { Shapes } from "@/api/client";

type Reason = NonNullable<Shapes["DecisionShown"]["reason"]>;

interface ReasonWords {
  readonly title: string;
  readonly todo: string;
}

export const REASON_WORDS: Readonly<Record<Reason, ReasonWords>> = {
  unknown_server: {
    title: "unknown server",
    todo: "Register the server, or correct the name.",
  },
  server_disabled: { title: "its server is disabled", todo: "Enable the server." },
  not_requested: {
    title: "its server is not selected by the request",
    todo: "Add the server to the request's servers, or to the task's default servers.",
  },
  not_allowed_by_key: {
    title: "outside the key's ceiling",
    todo: "Use another key, or create one with a wider ceiling.",
  },
  integration_off: {
    title: "the caller has its server switched off",
    todo: "The caller can switch it on under My connections, or with toolgate integrations on.",
  },
  integration_read_only: {
    title: "the caller has its server on for read-only tools only",
    todo: "The caller can switch on all tools under My connections, or with toolgate integrations on --all.",
  },
  not_allowed_by_task: {
    title: "its server is not allowed by the task",
    todo: "Allow the server in the task; the rule names the list.",
  },
  deny_all: {
    title: "its server allows no tools at all",
    todo: "Add patterns to the server's allowed tools; * allows all.",
  },
  env_missing: {
    title: "its server lacks an environment variable or secret",
    todo: "Set the variable or secret that the server references, and restart the gateway.",
  },
  list_timeout: { title: "its server did not list its tools in time", todo: "Test the server's connection." },
  list_failed: {
    title: "its server failed to start or to list its tools",
    todo: "Test the server's connection.",
  },
  not_in_server_allowlist: {
    title: "not in the allowed tools of its server",
    todo: "Add a pattern to the server's allowed tools.",
  },
  not_in_task_allowlist: {
    title: "not in the allowlist of the task",
    todo: "Add a pattern to the list that the rule names.",
  },
  denied_by_task: {
    title: "denied by the task",
    todo: "Remove the pattern from the list that the rule names.",
  },
  not_in_request_allowlist: {
    title: "not selected by the request",
    todo: "Add it to the request's tools, or remove the request's profile.",
  },
  denied_by_request: { title: "denied by the request", todo: "Use another profile in the request." },
  quarantined: {
    title: "quarantined: changed since approval",
    todo: "Review the change, and approve it if it is correct.",
  },
  invalid_definition: {
    title: "invalid definition",
    todo: "Fix the server; the rule names the error.",
  },
  approval_required: {
    title: "each call needs approval",
    todo: "Nothing to do: the tool is listed, and each call waits for approval.",
  },
};

/** The names of rules, as `policy` writes them, each with its words. */
const RULES: readonly [RegExp, string][] = [
  [/^enabled$/, "the server's switch"],
  [/^allowed_tools/, "the allowed tools of its server"],
  [/^key tasks/, "the tasks of the key"],
  [/^key servers/, "the servers of the key"],
  [/^key allow/, "the allowlist of the key"],
  [/^key deny/, "the denylist of the key"],
  [/^integrations: /, "the caller's integrations"],
  [/^mcp\.enabled/, "the task's switch"],
  [/^mcp\.allowed_server_ids/, "the servers the task allows"],
  [/^mcp\.default_server_ids/, "the default servers of the task"],
  [/^mcp\.tool_allowlist/, "the allowlist of the task"],
  [/^mcp\.tool_denylist/, "the denylist of the task"],
  [/^mcp\.tags/, "the tags of the task"],
  [/^mcp\.approval_policy/, "the approval policy of the task"],
  [/^approval_policy/, "the approval policy of its server"],
  [/^mcp\.profile_overrides server_ids/, "the servers of the task's overrides"],
  [/^mcp\.profile_overrides tags/, "the tags of the task's overrides"],
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
  [/^pin: not approved/, "its server is pinned, and this tool is not approved"],
  [/^pin: its definition changed/, "it changed since approval"],
  [/^pin: /, "its server is pinned to another definition"],
  [/^(tool )?definition: /, "the definition that its server listed"],
  [/^registry$/, "the registered servers"],
];

/** The words for a rule; empty if only its text fits. */
export function ruleInWords(rule: string): string {
  return RULES.find(([like]) => like.test(rule))?.[1] ?? "";
}
