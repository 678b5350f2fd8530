/** The numbers of the overview, computed from responses. */
import type { Shapes } from "@/api/client";
import { type HealthState, STATES, standing } from "@/parts/server-state";

type Server = Shapes["ServerShown"];

/** How many servers are in each state. Servers of unknown state are counted only if there are any. */
export function byState(servers: readonly Server[]): [state: HealthState | undefined, many: number][] {
  const found = servers.map((server) => standing(server).state);
  const many = (state: HealthState | undefined) => found.filter((one) => one === state).length;
  const states = many(undefined) > 0 ? [...STATES, undefined] : STATES;
  return states.map((state) => [state, many(state)]);
}

export interface Saving {
  readonly taskId: string;
  readonly tools: number;
  readonly tokens: number;
  /** How much less this task's callers get than all that is registered, in percent. */
  readonly percent: number;
}

/** What each task saves, the largest first. */
export function savings(overview: Shapes["OverviewResponse"]): Saving[] {
  const all = overview.registered_tokens;
  return overview.tasks
    .filter((task) => task.refusal === null)
    .map((task) => ({
      taskId: task.task_id,
      tools: task.tools,
      tokens: task.tokens,
      percent: all === 0 ? 0 : Math.round((100 * (all - task.tokens)) / all),
    }))
    .sort((a, b) => b.percent - a.percent || a.taskId.localeCompare(b.taskId));
}

const DAY_MS = 86_400_000;

/** What lists cost and saved, a bar for each day, also those on which nothing happened. */
export function tokenBars(
  found: Shapes["TokensResponse"],
): { at_ms: number; counts: [cost: number, saved: number] }[] {
  const days = new Map(found.days.map((one) => [one.day, one]));
  const first = Date.parse(found.since);
  const many = Math.round((Date.parse(found.until) - first) / DAY_MS) + 1;
  return Array.from({ length: many }, (_, place) => {
    const at_ms = first + place * DAY_MS;
    const one = days.get(dayOf(at_ms));
    return { at_ms, counts: [one?.definition_tokens ?? 0, Math.max(0, one?.saved_tokens ?? 0)] };
  });
}

/** A day as the gateway writes it, in UTC. */
export function dayOf(ms: number): string {
  return new Date(ms).toISOString().slice(0, 10);
}

/** Totals of a time range. */
export function totals({ buckets }: Shapes["Activity"]) {
  const sum = (of: "calls" | "errors" | "denials" | "pending") =>
    buckets.reduce((all, one) => all + one[of], 0);
  return { calls: sum("calls"), errors: sum("errors"), denials: sum("denials"), pending: sum("pending") };
}
