/** Short texts of an event. */
import type { Shapes } from "@/api/client";

export type Event = Shapes["AuditShown"];

const OPERATIONS: Readonly<Record<string, string>> = {
  put: "changed",
  create: "created",
  delete: "deleted",
  remove: "removed",
  test: "tested",
  upload: "uploaded",
  publish: "published",
  backup: "backed up",
  reload: "reloaded",
  login: "logged in to",
  logout: "logged out of",
};

const HASH = /^[0-9a-f]{64}$/;

/** A name as it is; of a hash, as much as tells it from others. */
function shortened(name: string): string {
  return HASH.test(name) ? `${name.slice(0, 12)}…` : name;
}

function counted(many: number, what: string): string {
  return many === 1 ? `1 ${what}` : `${many} ${what}s`;
}

/** The action, done or attempted. A denied call has the name that its caller sent. */
export function subjectOf(event: Event): string {
  switch (event.type) {
    case "admin":
      return `${OPERATIONS[event.operation ?? ""] ?? event.operation} ${event.kind?.replace("_", " ")} ${shortened(event.record_id ?? "")}`;
    case "call":
    case "approval":
    case "definition":
      return [event.server_id, event.tool].filter(Boolean).join(".");
    case "credential":
      return `credential from ${event.peer}`;
    case "invocation":
      return `run of ${event.task_id}`;
    case "spawn":
      return `process of ${event.server_id}`;
    case "scope":
      return `${counted(event.tools ?? 0, "tool")} of ${counted(event.servers ?? 0, "server")}`;
    case "session":
      return `${counted(event.tool_calls ?? 0, "call")}, ${counted(event.rounds ?? 0, "round")} at ${event.door}`;
  }
}

/** The code of a call that was denied until someone approves it. */
const PENDING = "mcp_approval_required";

/** Whether a call was denied only until someone approves it. */
export function isPending(event: Event): boolean {
  return event.outcome === "denied" && event.code === PENDING;
}

const OUTCOMES: Readonly<Record<NonNullable<Event["outcome"]>, string>> = {
  ok: "succeeded",
  tool_error: "tool error",
  error: "failed",
  denied: "denied",
  cancelled: "cancelled",
  unknown: "result unknown",
};

/** Its result. */
export function resultOf(event: Event): string {
  switch (event.type) {
    case "call":
      if (isPending(event)) return "pending approval";
      return event.outcome === null ? "" : OUTCOMES[event.outcome];
    case "admin":
      return event.revision === null ? "done" : `revision ${event.revision}`;
    case "approval":
      return event.state === "asked" ? "requested" : (event.state ?? "");
    case "invocation":
      return event.state ?? "";
    case "definition":
      return "changed";
    case "credential":
      return "rejected";
    case "spawn":
      return event.reason === "trial" ? "tested" : "started";
    case "scope":
      return event.excluded ? `listed, ${event.excluded} excluded` : "listed";
    case "session":
      return `ended: ${event.ended_by}`;
  }
}

const COLOURS: Readonly<Record<string, string>> = {
  succeeded: "green",
  approved: "green",
  used: "green",
  "tool error": "orange",
  failed: "red",
  rejected: "red",
  denied: "yellow",
  "pending approval": "blue",
  changed: "yellow",
  requested: "blue",
  cancelled: "gray",
  expired: "gray",
  "result unknown": "red",
};

/** Who had which part in an event, in words. */
export function peopleOf(event: Event): [part: string, who: string][] {
  const people: [string, string | null][] =
    event.type === "approval"
      ? [
          ["Asked by", event.principal],
          ["Decided by", event.decided_by],
        ]
      : [[PARTS[event.type], event.principal]];
  return people.filter((one): one is [string, string] => Boolean(one[1]));
}

const PARTS: Readonly<Record<Event["type"], string>> = {
  call: "Called by",
  admin: "Changed by",
  approval: "Asked by",
  credential: "From",
  definition: "Found for",
  invocation: "Started by",
  spawn: "Started for",
  scope: "Listed for",
  session: "Session of",
};

export function colourOf(event: Event): string {
  return COLOURS[resultOf(event)] ?? "blue";
}

export function tookMs(event: Event): number | null {
  if (event.outcome === "denied") return null;
  if (event.duration_us !== null) return event.duration_us / 1_000;
  return event.duration_ms;
}

/** The lens on the scope that decided about a call; null if the event has no decision about a tool. */
export function lensOn(event: Event): string | null {
  if (event.type !== "call" || event.tool === null) return null;
  const params = new URLSearchParams({ why: subjectOf(event) });
  if (event.task_id) params.set("task", event.task_id);
  return `/scope?${params}`;
}

/** Members that are shown elsewhere or not at all. */
const APART: readonly string[] = ["event_id", "arguments"];

/** The members of an event with a value, in the order of the API. */
export function detailsOf(event: Event): [name: string, value: string][] {
  return Object.entries(event)
    .filter(([name, value]) => value !== null && value !== "" && !APART.includes(name))
    .map(([name, value]) => [name, typeof value === "object" ? JSON.stringify(value) : String(value)]);
}
