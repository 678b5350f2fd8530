/** One run from its events, and the words for its state. */
import type { Shapes } from "@/api/client";
import type { StreamEvent } from "@/api/stream";

export type Run = Shapes["InvocationShown"];
export type Summary = Shapes["InvocationSummary"];
export type Line = Shapes["LogLine"];
export type RunState = Run["state"];

export interface Followed {
  readonly state: RunState | null;
  readonly lines: readonly Line[];
  /** All of it, once it has ended. */
  readonly ended: Run | null;
  /** The error with which the gateway ended the stream. */
  readonly broken: string | null;
}

export const NOTHING_YET: Followed = { state: null, lines: [], ended: null, broken: null };

/** What is known after `event`. Lines that came before, and come again, are not counted twice. */
export function noteEvent(known: Followed, event: StreamEvent): Followed {
  switch (event.event) {
    case "state":
      return { ...known, state: (JSON.parse(event.data) as { state: RunState }).state };
    case "line": {
      const line = JSON.parse(event.data) as Line;
      return line.seq <= lastSeq(known) ? known : { ...known, lines: [...known.lines, line] };
    }
    case "end": {
      const ended = JSON.parse(event.data) as Run;
      return { ...known, state: ended.state, ended };
    }
    case "error":
      return { ...known, broken: (JSON.parse(event.data) as { message: string }).message };
    default:
      return known;
  }
}

export function lastSeq(known: Followed): number {
  return known.lines.at(-1)?.seq ?? 0;
}

export const COLOURS: Readonly<Record<RunState, string>> = {
  queued: "gray",
  running: "blue",
  succeeded: "green",
  failed: "red",
  cancelled: "orange",
  crashed: "red",
};

const ENDS: Readonly<Record<NonNullable<Run["ended_by"]>, string>> = {
  exit: "exit",
  trap: "a trap",
  out_of_fuel: "out of fuel",
  stack_overflow: "stack overflow",
  deadline: "timed out",
  cancelled: "cancelled",
  revoked: "the caller's key was revoked",
  module: "the module could not run",
  node_stopped: "the node stopped",
  node_lost: "the node was lost",
  internal: "gateway error",
};

/** How a run ended, in a word or two. */
export function endOf(run: Summary): string {
  if (run.ended_by === null) return "–";
  return run.ended_by === "exit" ? `exit ${run.exit_code ?? "?"}` : ENDS[run.ended_by];
}

export function isOver(state: RunState | null): boolean {
  return state !== null && state !== "queued" && state !== "running";
}

/** How long it ran, or has run; null: it never started. */
export function tookMs(run: Summary, now: number): number | null {
  return run.started_ms === null ? null : Math.max(0, (run.ended_ms ?? now) - run.started_ms);
}
