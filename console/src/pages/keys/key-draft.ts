/** The draft of a key, and the request body that it becomes. */
import type { Shapes } from "@/api/client";
import { endsSoon } from "@/parts/attention-of";
import type { TimeBudgets } from "@/parts/time-budget";

export type KeyRole = Shapes["KeySent"]["role"];

export interface KeyDraft {
  keyId: string;
  role: KeyRole;
  /** A null list does not restrict; an empty one allows nothing. */
  tasks: string[] | null;
  servers: string[] | null;
  allow: string[] | null;
  deny: string[];
  defaultTask: string;
  /** The last day it is valid, as `YYYY-MM-DD`; empty: it does not expire. */
  lastDay: string;
  budgets: TimeBudgets;
  integrations: Shapes["KeySent"]["integrations"];
}

export const NEW_KEY: KeyDraft = {
  keyId: "",
  role: "agent",
  tasks: null,
  servers: null,
  allow: null,
  deny: [],
  defaultTask: "",
  lastDay: "",
  budgets: {},
  integrations: "on",
};

export const ROLES: readonly { value: KeyRole; label: string }[] = [
  { value: "agent", label: "agent: calls tools" },
  { value: "viewer", label: "viewer: also reads the registry" },
  { value: "publisher", label: "publisher: also writes tasks and profiles" },
  { value: "admin", label: "admin: manages everything" },
  { value: "node", label: "node: for a node of this gateway" },
];

export const INTEGRATIONS: readonly { value: "on" | "read_only" | "off"; label: string }[] = [
  { value: "on", label: "on: all tools of every allowed server" },
  { value: "read_only", label: "read-only: the read-only tools of every allowed server" },
  { value: "off", label: "off: nothing until the caller switches servers on" },
];

/** The end of a day, where the browser is, in seconds. */
export function endOfDay(day: string): number {
  return Math.floor(new Date(`${day}T23:59:59`).getTime() / 1000);
}

export function keyBody(draft: KeyDraft): Shapes["KeySent"] {
  const { tasks, servers, allow, deny } = draft;
  return {
    key_id: draft.keyId.trim(),
    role: draft.role,
    ceiling: { tasks, servers, allow, deny },
    default_task: draft.defaultTask.trim() || null,
    expires_at_s: draft.lastDay === "" ? null : endOfDay(draft.lastDay),
    budgets: { ...draft.budgets },
    integrations: draft.integrations,
  };
}

/** The problems of a draft by field. The gateway validates again. */
export function keyProblems(draft: KeyDraft, nowMs: number): Partial<Record<keyof KeyDraft, string>> {
  const problems: Partial<Record<keyof KeyDraft, string>> = {};
  if (draft.keyId.trim() === "") problems.keyId = "Enter a name: the audit log identifies the caller by it.";
  if (draft.lastDay !== "" && !(endOfDay(draft.lastDay) * 1000 > nowMs))
    problems.lastDay = "This day is in the past.";
  const task = draft.defaultTask.trim();
  if (task !== "" && draft.tasks !== null && !draft.tasks.includes(task))
    problems.defaultTask = "The default task must be one of the allowed tasks.";
  return problems;
}

/** The ceiling of a key, in words. */
export function reachOf({ tasks, servers, allow, deny }: Shapes["CeilingBody"]): string {
  const only = [
    listed("task", tasks, ""),
    listed("server", servers, ""),
    listed("tool", allow, "that match "),
  ].filter((one) => one !== null);
  const never = deny.length > 0 ? `never tools that match ${either(deny)}` : null;
  if (only.length === 0) return never === null ? "no ceiling: everything" : `everything, but ${never}`;
  return [...only, never].filter((one) => one !== null).join("; ");
}

function listed(what: string, names: readonly string[] | null | undefined, how: string): string | null {
  if (names == null) return null;
  if (names.length === 0) return `no ${what}s`;
  return `only ${what}${names.length === 1 && how === "" ? "" : "s"} ${how}${how ? either(names) : joined(names, "and")}`;
}

function either(names: readonly string[]): string {
  return joined(names, "or");
}

function joined(names: readonly string[], word: string): string {
  const last = names.at(-1) ?? "";
  return names.length < 2 ? last : `${names.slice(0, -1).join(", ")} ${word} ${last}`;
}

export type Nearness = "never" | "later" | "soon" | "over";

/** How near the end of a key is. `at` is in seconds; null: it does not expire. */
export function nearness(at: number | null | undefined, nowMs: number): Nearness {
  if (at == null) return "never";
  if (at * 1000 <= nowMs) return "over";
  return endsSoon(at, nowMs) ? "soon" : "later";
}

/** The task of a key's clients: its default, or the first that it may use. */
export function taskOf({
  default_task,
  ceiling,
}: Pick<Shapes["KeyShown"], "default_task" | "ceiling">): string {
  return default_task ?? ceiling.tasks?.[0] ?? "";
}
