/** The time range of the audit log, kept in the URL. */
import { SegmentedControl } from "@mantine/core";
import { useSearchParams } from "react-router";

const DAY_MS = 86_400_000;
const DAYS = ["7", "30", "90"];

/** The days that the address asks for. */
export function useDays(usual: string) {
  const [params, setParams] = useSearchParams();
  const asked = params.get("days") ?? "";
  const days = DAYS.includes(asked) ? asked : usual;
  const setDays = (next: string) =>
    setParams(
      (old) => {
        if (next === usual) old.delete("days");
        else old.set("days", next);
        return old;
      },
      { replace: true },
    );
  return { days, setDays, sinceMs: () => Date.now() - Number(days) * DAY_MS };
}

interface SpanProps {
  readonly days: string;
  readonly setDays: (days: string) => void;
}

export function Span({ days, setDays }: SpanProps) {
  return (
    <SegmentedControl
      size="xs"
      aria-label="Time range"
      value={days}
      onChange={setDays}
      data={DAYS.map((value) => ({ value, label: `${value} days` }))}
    />
  );
}
