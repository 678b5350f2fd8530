/** When something was used last, as far as the audit log tells. */
import { Text } from "@mantine/core";
import { ago, moment } from "./time";

const DAY = new Intl.DateTimeFormat("en", { dateStyle: "medium" });

interface LastUsedProps {
  /** Null: not within the kept audit log. */
  readonly ms: number | null;
  /** When the kept audit log begins. Null: it is empty. */
  readonly beginsMs: number | null;
}

export function LastUsed({ ms, beginsMs }: LastUsedProps) {
  if (ms !== null) return <span title={moment(ms)}>{ago(ms)}</span>;
  if (beginsMs === null) return "no audit log yet";
  return (
    <Text span size="sm" title={`The audit log begins on ${moment(beginsMs)}`}>
      not since {DAY.format(beginsMs)}
    </Text>
  );
}

/** The begin of what is known: of the asked time, or of the audit log if that is later. */
export function knownSince(sinceMs: number, beginsMs: number | null): number {
  return Math.max(sinceMs, beginsMs ?? sinceMs);
}
