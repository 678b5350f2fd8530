/** The draft of a hand-over: a key for someone, bound to one task, and the request bodies that it becomes. */
import type { Shapes } from "@/api/client";
import type { TimeBudgets } from "@/parts/time-budget";

export interface HandOverDraft {
  /** A person or a program. */
  readonly who: string;
  /** Null: the name follows `who`. */
  readonly keyId: string | null;
  /** An existing task, or a new one from the tools that are picked in the catalog. */
  readonly from: "task" | "picks";
  readonly task: string;
  /** Null: the name follows `who`. */
  readonly newTask: string | null;
  /** Empty: the key does not expire. */
  readonly days: string;
  readonly budgets: TimeBudgets;
  readonly client: string;
  readonly platform: "linux" | "darwin";
}

/** The limits suit one person: a call a second, and a thousand a day, stop a loop before it costs much. */
export const NEW_HAND_OVER: HandOverDraft = {
  who: "",
  keyId: null,
  from: "task",
  task: "",
  newTask: null,
  days: "30",
  budgets: { calls_per_minute: 60, calls_per_day: 1_000 },
  client: "claude-code",
  platform: "linux",
};

export const LIFETIMES: readonly { readonly value: string; readonly label: string }[] = [
  { value: "1", label: "1 day" },
  { value: "7", label: "7 days" },
  { value: "30", label: "30 days" },
  { value: "90", label: "90 days" },
  { value: "365", label: "1 year" },
  { value: "", label: "never" },
];

const MOST_NAME_CHARS = 64;
const DAY_S = 86_400;

/** `text` as the ID of a record; empty if nothing of it can be in one. */
export function idFrom(text: string): string {
  return text
    .normalize("NFKD")
    .replace(/\p{M}/gu, "")
    .toLowerCase()
    .replace(/[^a-z0-9._]+/g, "-")
    .slice(0, MOST_NAME_CHARS)
    .replace(/^[-._]+|[-._]+$/g, "");
}

/** `wanted`, or with the first number that is not taken. */
export function freeId(wanted: string, taken: ReadonlySet<string>): string {
  if (wanted === "") return "";
  for (let number = 1; ; number += 1) {
    const suffix = number === 1 ? "" : `-${number}`;
    const id = `${wanted.slice(0, MOST_NAME_CHARS - suffix.length)}${suffix}`;
    if (!taken.has(id)) return id;
  }
}

export interface Known {
  readonly keys: ReadonlySet<string>;
  readonly tasks: ReadonlySet<string>;
}

export const keyIdOf = (draft: HandOverDraft, { keys }: Known) =>
  draft.keyId?.trim() ?? freeId(idFrom(draft.who), keys);

/** The task of the key: the chosen one, or the new one. */
export function taskIdOf(draft: HandOverDraft, { tasks }: Known): string {
  if (draft.from === "task") return draft.task;
  return draft.newTask?.trim() ?? freeId(idFrom(draft.who === "" ? "" : `${draft.who} tools`), tasks);
}

export type Problems = Partial<Record<"who" | "keyId" | "task" | "newTask", string>>;

/** What is missing, by field. The gateway validates again. */
export function handOverProblems(draft: HandOverDraft, known: Known, picked: number): Problems {
  const problems: Problems = {};
  const keyId = keyIdOf(draft, known);
  if (draft.who.trim() === "") problems.who = "Enter who gets the key: a person or a program.";
  if (keyId === "" && problems.who === undefined) problems.keyId = "Enter a name of letters and digits.";
  if (known.keys.has(keyId)) problems.keyId = `A key named ${keyId} exists. Choose another name.`;
  if (draft.from === "task") {
    if (draft.task === "") problems.task = "Choose a task.";
  } else {
    const task = taskIdOf(draft, known);
    if (picked === 0) problems.task = "Pick tools in the catalog first.";
    if (known.tasks.has(task)) problems.newTask = `A task named ${task} exists. Choose another name.`;
    else if (task === "") problems.newTask = "Enter a name of letters and digits.";
  }
  return problems;
}

export function handOverKey(draft: HandOverDraft, known: Known, nowMs: number): Shapes["KeySent"] {
  const task = taskIdOf(draft, known);
  return {
    key_id: keyIdOf(draft, known),
    role: "agent",
    ceiling: { tasks: [task], deny: [] },
    default_task: task,
    expires_at_s: draft.days === "" ? null : Math.floor(nowMs / 1000) + Number(draft.days) * DAY_S,
    budgets: { ...draft.budgets },
    integrations: "on",
  };
}

/** A task with exactly these tools: full names, and `id.*` for whole packages. No server ID has a dot. */
export function pickedTask(who: string, names: readonly string[]) {
  const parts = names.map((one) => one.split(/\.(.*)/s));
  const servers = [...new Set(parts.map(([server = ""]) => server))].sort();
  return {
    display_name: `Tools for ${who.trim()}`,
    config: {
      "mcp.enabled": true,
      "mcp.default_server_ids": servers,
      "mcp.allowed_server_ids": servers,
      "mcp.tool_allowlist": parts.map(([server = "", tool = ""]) => `${server}/${tool}`).sort(),
    },
  };
}
