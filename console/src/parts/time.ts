/** Times, sizes and counts as people read them. */

const RELATIVE = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const STEPS: readonly [Intl.RelativeTimeFormatUnit, number][] = [
  ["second", 60],
  ["minute", 60],
  ["hour", 24],
  ["day", 30],
  ["month", 12],
];

/** How long ago `ms` was, or how long until then. */
export function ago(ms: number, now: number = Date.now()): string {
  let value = (ms - now) / 1000;
  for (const [unit, size] of STEPS) {
    if (Math.abs(value) < size) return RELATIVE.format(Math.round(value), unit);
    value /= size;
  }
  return RELATIVE.format(Math.round(value), "year");
}

/** A moment, exactly. */
export function moment(ms: number): string {
  return new Date(ms).toLocaleString("en", { dateStyle: "medium", timeStyle: "medium", hourCycle: "h23" });
}

/** The day of a moment, in the browser's time zone. */
export function day(ms: number): string {
  const at = new Date(ms);
  const two = (value: number) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

export function duration(ms: number): string {
  if (ms < 1) return `${Math.round(ms * 1000)} µs`;
  if (ms < 1_000) return `${ms < 10 ? ms.toFixed(1) : Math.round(ms)} ms`;
  return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
}

export function count(value: number): string {
  return value.toLocaleString("en");
}

export function bytes(value: number): string {
  if (value < 1_024) return `${value} B`;
  const kib = value / 1_024;
  return kib < 1_024 ? `${kib.toFixed(1)} KiB` : `${(kib / 1_024).toFixed(1)} MiB`;
}
