/** One call on a time axis, with what belongs to it: its approval, and the other calls of its request or run. */
import { type Event, resultOf, subjectOf, tookMs } from "./words";

export interface Bar {
  readonly eventId: string;
  readonly title: string;
  readonly result: string;
  /** Its begin and length, as shares of the whole. */
  readonly from: number;
  readonly share: number;
  readonly startMs: number;
  readonly tookMs: number;
}

export interface Waterfall {
  readonly startMs: number;
  readonly tookMs: number;
  readonly bars: readonly Bar[];
}

/** At most this many bars: a session may have hundreds of calls. */
export const MOST_BARS = 24;

/** Whether two events belong to one piece of work. */
function belongs(a: Event, b: Event): boolean {
  const same = (name: "request_id" | "trace_id" | "approval_id" | "invocation_id") =>
    Boolean(a[name]) && a[name] === b[name];
  const isOfRun = a.invocation_id !== null && b.session === a.invocation_id;
  const isRunOf = b.invocation_id !== null && a.session === b.invocation_id;
  return (
    same("trace_id") ||
    same("request_id") ||
    same("approval_id") ||
    same("invocation_id") ||
    isOfRun ||
    isRunOf
  );
}

/** A call is recorded when it ends. */
function startOf(event: Event): number {
  return event.at_ms - (tookMs(event) ?? 0);
}

/** The waterfall of an event; null if there is nothing to draw: no time passed, and nothing belongs to it. */
export function waterfallOf(event: Event, around: readonly Event[]): Waterfall | null {
  const all = [...around.filter((one) => belongs(event, one)), event]
    .sort((a, b) => startOf(a) - startOf(b) || a.at_ms - b.at_ms)
    .slice(0, MOST_BARS);
  const startMs = Math.min(...all.map(startOf));
  const took = Math.max(...all.map((one) => one.at_ms)) - startMs;
  if (took <= 0) return null;
  const bars = all.map((one) => ({
    eventId: one.event_id,
    title: subjectOf(one),
    result: resultOf(one),
    from: (startOf(one) - startMs) / took,
    share: (tookMs(one) ?? 0) / took,
    startMs: startOf(one) - startMs,
    tookMs: tookMs(one) ?? 0,
  }));
  return { startMs, tookMs: took, bars };
}
