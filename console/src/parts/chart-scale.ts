/** The axes of a chart: round numbers to the side, and times below that fit their range. */

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

/** Marks from 0 to at least `most`: few, evenly spaced, and round. */
export function marks(most: number, about = 4): number[] {
  if (most <= 0) return [0, 1];
  const rough = most / about;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = Math.max(1, [1, 2, 5, 10].map((one) => one * unit).find((one) => one >= rough) ?? 10 * unit);
  const many = Math.ceil(most / step);
  return Array.from({ length: many + 1 }, (_, place) => place * step);
}

/** A count in the room of an axis: 1,200 as 1.2k. */
export function short(value: number): string {
  return value.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });
}

const STEPS_MS = [
  5 * 60_000,
  10 * 60_000,
  15 * 60_000,
  HOUR_MS,
  3 * HOUR_MS,
  4 * HOUR_MS,
  6 * HOUR_MS,
  12 * HOUR_MS,
  DAY_MS,
  2 * DAY_MS,
  7 * DAY_MS,
  14 * DAY_MS,
];

export interface TimeMark {
  readonly ms: number;
  readonly label: string;
  /** Its place in the range, from 0 to 1. */
  readonly at: number;
}

/** Whole hours or days in local time, or in UTC, between two moments. */
export function timeMarks(sinceMs: number, untilMs: number, most = 8, isUtc = false): TimeMark[] {
  const span = untilMs - sinceMs;
  const step = STEPS_MS.find((one) => span / one <= most) ?? 30 * DAY_MS;
  const shift = isUtc ? 0 : new Date(sinceMs).getTimezoneOffset() * 60_000;
  const first = Math.ceil((sinceMs - shift) / step) * step + shift;
  const found: TimeMark[] = [];
  for (let ms = first; ms < untilMs; ms += step) {
    found.push({ ms, label: labelOf(ms, step, isUtc), at: (ms - sinceMs) / span });
  }
  return found;
}

function labelOf(ms: number, step: number, isUtc: boolean): string {
  const options: Intl.DateTimeFormatOptions =
    step >= DAY_MS
      ? { month: "short", day: "numeric" }
      : { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return new Date(ms).toLocaleString("en", { ...options, ...(isUtc ? { timeZone: "UTC" } : {}) });
}
