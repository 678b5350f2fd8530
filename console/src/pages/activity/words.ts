/** Short texts of an event. */
import type { Shapes } from "@/api/client";

export type Event = Shapes["AuditShown"];

/** The action, done or attempted. A denied call has the name that its caller sent. */
export function subjectOf(event: Event): string {
  switch (event.type) {
    case "admin":
      return `${event.operation} ${event.kind} ${event.record_id}`;
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
      return `${event.tools} tools of ${event.servers} servers`;
    case "session":
      return `${event.tool_calls} calls, ${event.rounds} rounds at ${event.door}`;
  }
}

/** Its result. */
export function resultOf(event: Event): string {
  switch (event.type) {
    case "call":
      return event.outcome ?? "";
    case "admin":
      return event.revision === null ? "done" : `revision ${event.revision}`;
    case "approval":
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
  ok: "green",
  approved: "green",
  used: "green",
  succeeded: "green",
  tool_error: "orange",
  error: "red",
  failed: "red",
  rejected: "red",
  denied: "yellow",
  changed: "yellow",
  asked: "yellow",
  cancelled: "gray",
  expired: "gray",
  unknown: "red",
};

export function colourOf(event: Event): string {
  return COLOURS[resultOf(event)] ?? "blue";
}

export function tookMs(event: Event): number | null {
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
