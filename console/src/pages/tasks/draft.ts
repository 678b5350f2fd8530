/** A task as the form has it, and the record it becomes. What the form does not know or change stays as it is. */
import type { Shapes } from "@/api/client";
import { type TimeBudgets, timeBudgetsIn } from "@/parts/time-budget";
import { isSame, mergedFields } from "@/parts/use-draft";
import type { Picks } from "./picks";

export type Task = Shapes["TaskShown"];
export type Workload = Shapes["WorkloadBody"];
export type Names = readonly string[] | null;

export const BUDGETS = {
  max_iterations: { title: "Rounds per chat", min: 0 },
  max_total_tool_calls: { title: "Tool calls", min: 0 },
  max_tool_output_bytes: { title: "Result size (bytes)", min: 256 },
  tool_timeout_ms: { title: "Call timeout (ms)", min: 100 },
  wall_clock_ms: { title: "Chat timeout (ms)", min: 1_000 },
} as const;
export type Budget = keyof typeof BUDGETS;

export interface Overrides {
  readonly server_ids: Names;
  readonly tags: Names;
  readonly tool_allowlist: Names;
  readonly tool_denylist: Names;
}

export interface Draft {
  readonly task_id: string;
  readonly display_name: string;
  readonly isEnabled: boolean;
  /** Otherwise its rules deny nothing, and what they would deny is reported. */
  readonly isEnforced: boolean;
  /** A scope without a server is rejected instead of warned about. */
  readonly requiresServers: boolean;
  readonly picks: Picks;
  readonly allow: Names;
  readonly deny: readonly string[];
  readonly profile: string | null;
  readonly overrides: Overrides;
  readonly tags: Names;
  readonly approval: "never" | "policy" | "always" | null;
  /** Whether the caller may approve by elicitation. */
  readonly isInPlace: boolean;
  readonly spending: TimeBudgets;
  readonly mode: "inject" | "passthrough" | null;
  readonly budgets: Readonly<Partial<Record<Budget, number>>>;
  readonly workload: Workload | null;
}

/** The value of each key of `config` for a draft; undefined: the key is omitted. */
const VALUES: Readonly<Record<string, (draft: Draft) => unknown>> = {
  "mcp.enabled": (draft) => draft.isEnabled || undefined,
  "mcp.enforce": (draft) => (draft.isEnforced ? undefined : false),
  "mcp.require_servers": (draft) => draft.requiresServers || undefined,
  "mcp.default_server_ids": (draft) => draft.picks.default ?? undefined,
  "mcp.allowed_server_ids": (draft) => draft.picks.allowed ?? undefined,
  "mcp.tool_allowlist": (draft) => draft.allow ?? undefined,
  "mcp.tool_denylist": (draft) => (draft.deny.length > 0 ? draft.deny : undefined),
  "mcp.profile": (draft) => draft.profile ?? undefined,
  "mcp.profile_overrides": (draft) => present(draft.overrides),
  "mcp.tags": (draft) => draft.tags ?? undefined,
  "mcp.approval_policy": (draft) => draft.approval ?? undefined,
  "mcp.approval_in_place": (draft) => (draft.isInPlace ? undefined : false),
  "mcp.budgets": (draft) => present(draft.spending),
  "chat.mode": (draft) => draft.mode ?? undefined,
  "chat.budgets": (draft) => present(draft.budgets),
};

/** The members with a value; undefined if all are omitted. */
function present(value: object): object | undefined {
  const said = Object.entries(value).filter(([, one]) => one !== null && one !== undefined);
  return said.length > 0 ? Object.fromEntries(said) : undefined;
}

function read(config: Task["config"], key: string): unknown {
  try {
    return JSON.parse(config[key] ?? "null");
  } catch {
    return null;
  }
}

function names(value: unknown): Names {
  return Array.isArray(value) && value.every((one) => typeof one === "string") ? value : null;
}

function text(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function oneOf<T extends string>(value: unknown, known: readonly T[]): T | null {
  return known.find((one) => one === value) ?? null;
}

function members(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : {};
}

function numbers(value: unknown): Draft["budgets"] {
  const sent = members(value);
  const said = (Object.keys(BUDGETS) as Budget[]).filter((name) => typeof sent[name] === "number");
  return Object.fromEntries(said.map((name) => [name, sent[name]]));
}

function overridesIn(value: unknown): Overrides {
  const sent = members(value);
  return {
    server_ids: names(sent.server_ids),
    tags: names(sent.tags),
    tool_allowlist: names(sent.tool_allowlist),
    tool_denylist: names(sent.tool_denylist),
  };
}

/** The record as a draft. Values that cannot be read are omitted. */
export function draftOf({ task_id, display_name, config, workload }: Task): Draft {
  return {
    task_id,
    display_name,
    isEnabled: read(config, "mcp.enabled") === true,
    isEnforced: read(config, "mcp.enforce") !== false,
    requiresServers: read(config, "mcp.require_servers") === true,
    picks: {
      default: names(read(config, "mcp.default_server_ids")),
      allowed: names(read(config, "mcp.allowed_server_ids")),
    },
    allow: names(read(config, "mcp.tool_allowlist")),
    deny: names(read(config, "mcp.tool_denylist")) ?? [],
    profile: text(read(config, "mcp.profile")),
    overrides: overridesIn(read(config, "mcp.profile_overrides")),
    tags: names(read(config, "mcp.tags")),
    approval: oneOf(read(config, "mcp.approval_policy"), ["never", "policy", "always"] as const),
    isInPlace: read(config, "mcp.approval_in_place") !== false,
    spending: timeBudgetsIn(read(config, "mcp.budgets")),
    mode: oneOf(read(config, "chat.mode"), ["inject", "passthrough"] as const),
    budgets: numbers(read(config, "chat.budgets")),
    workload: workload ?? null,
  };
}

/** A new task. */
export const NEW: Task = {
  task_id: "",
  display_name: "",
  config: {
    "mcp.enabled": "true",
    "mcp.default_server_ids": "[]",
  },
  workload: null,
  revision: 0,
};

/** Servers, and patterns of their tools. */
export interface Picked {
  readonly servers: readonly string[];
  /** Null: all tools of the servers. */
  readonly allow: Names;
}

/** A new task with what was picked in the catalog. */
export function withPicked({ servers, allow }: Picked): Partial<Task> {
  const allowed: Task["config"] = allow === null ? {} : { "mcp.tool_allowlist": JSON.stringify(allow) };
  return { config: { ...NEW.config, "mcp.default_server_ids": JSON.stringify(servers), ...allowed } };
}

export interface Body {
  readonly display_name: string;
  readonly config: Task["config"];
  readonly workload: Workload | null;
}

/** The record that `draft` makes of `stored`: unchanged keys keep their exact text. */
export function bodyOf(draft: Draft, stored: Task): Body {
  const before = draftOf(stored);
  const config = { ...stored.config };
  for (const [key, valueIn] of Object.entries(VALUES)) {
    const value = valueIn(draft);
    if (isSame(value, valueIn(before))) continue;
    if (value === undefined) delete config[key];
    else config[key] = JSON.stringify(value);
  }
  return { display_name: draft.display_name, config, workload: draft.workload };
}

/** The keys of `config` that the form has no field for. They are kept. */
export function otherKeys({ config }: Task): string[] {
  return Object.keys(config)
    .filter((key) => !(key in VALUES))
    .sort();
}

/** `draft`, made from `old`, merged over `fresh`: edited fields stay, all others come from `fresh`. */
export function rebased(draft: Draft, old: Task, fresh: Task): Draft {
  return mergedFields(draft, draftOf(old), draftOf(fresh));
}
