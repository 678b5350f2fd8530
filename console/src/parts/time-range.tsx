/** The time range of charts, counts and lists. All pages share it: in the URL if it was chosen, and for the tab. */
import { SegmentedControl } from "@mantine/core";
import { useSearchParams } from "react-router";

const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

export const RANGES = {
  "1h": { title: "1 h", words: "the last hour", ms: HOUR_MS, buckets: 60 },
  "24h": { title: "24 h", words: "the last 24 hours", ms: DAY_MS, buckets: 48 },
  "7d": { title: "7 d", words: "the last 7 days", ms: 7 * DAY_MS, buckets: 56 },
  "30d": { title: "30 d", words: "the last 30 days", ms: 30 * DAY_MS, buckets: 60 },
  "90d": { title: "90 d", words: "the last 90 days", ms: 90 * DAY_MS, buckets: 90 },
} as const;

export type Range = keyof typeof RANGES;

export const ALL_RANGES = Object.keys(RANGES) as Range[];
const KEY = "toolgate.range";
const PARAMETER = "range";

function isRange(text: string | null): text is Range {
  return text !== null && text in RANGES;
}

/** The range that the URL has, or that was chosen in this tab, or `usual`. */
export function readRange(asked: string | null, kept: string | null, usual: Range): Range {
  if (isRange(asked)) return asked;
  return isRange(kept) ? kept : usual;
}

/** Of the ranges in `among`, the chosen one; if that is not among them, the longest up to it, or the shortest. */
export function nearest(range: Range, among: readonly Range[]): Range {
  const shorter = among.filter((one) => RANGES[one].ms <= RANGES[range].ms);
  return shorter.at(-1) ?? among[0] ?? range;
}

export interface TimeRange {
  readonly range: Range;
  readonly setRange: (range: Range) => void;
  readonly words: string;
  readonly ms: number;
  readonly buckets: number;
  readonly among: readonly Range[];
}

/** The shared range, among those that a page has data for. */
export function useTimeRange(usual: Range = "24h", among: readonly Range[] = ALL_RANGES): TimeRange {
  const [params, setParams] = useSearchParams();
  const chosen = readRange(params.get(PARAMETER), window.sessionStorage.getItem(KEY), usual);
  const range = nearest(chosen, among);
  const setRange = (next: Range) => {
    window.sessionStorage.setItem(KEY, next);
    setParams(
      (old) => {
        old.set(PARAMETER, next);
        return old;
      },
      { replace: true },
    );
  };
  const { words, ms, buckets } = RANGES[range];
  return { range, setRange, words, ms, buckets, among };
}

export function TimeRangePicker({ time }: { readonly time: TimeRange }) {
  return (
    <SegmentedControl
      size="xs"
      aria-label="Time range"
      value={time.range}
      onChange={(value) => {
        if (isRange(value)) time.setRange(value);
      }}
      data={time.among.map((value) => ({ value, label: RANGES[value].title }))}
    />
  );
}
