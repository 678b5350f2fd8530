/** Rate limits and quotas: record fields and labels. */
import type { Shapes } from "@/api/client";

export type Use = Shapes["BudgetUsed"];

export const BUDGET_WORDS = {
  calls_per_minute: "Calls per minute",
  calls_per_day: "Calls per day",
  tokens_per_day: "Tokens per day",
} as const;

export type TimeBudget = keyof typeof BUDGET_WORDS;
export type TimeBudgets = Readonly<Partial<Record<TimeBudget, number>>>;

const NAMES = Object.keys(BUDGET_WORDS) as TimeBudget[];

/** The limits in an unchecked value. */
export function timeBudgetsIn(value: unknown): TimeBudgets {
  const sent: Readonly<Record<string, unknown>> =
    typeof value === "object" && value !== null && !Array.isArray(value) ? { ...value } : {};
  return Object.fromEntries(
    NAMES.filter((name) => typeof sent[name] === "number").map((name) => [name, sent[name]]),
  );
}

/** Those that are nearest to their end first. */
export function byFullness(uses: readonly Use[]): Use[] {
  return [...uses].sort((a, b) => b.used / b.limit - a.used / a.limit);
}
