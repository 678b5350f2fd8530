/** Names of modules and runs for people: the API knows them by hash and id. */
import type { Shapes } from "@/api/client";
import { bytes, moment } from "@/parts/time";

type Module = Pick<Shapes["ModuleShown"], "tasks" | "at_ms" | "size">;

/** A module goes by the tasks that run it; without one, by its upload. */
export function moduleName({ tasks, at_ms, size }: Module): string {
  const [first, second, ...others] = tasks;
  if (first === undefined) return `${bytes(size)} uploaded ${moment(at_ms)}`;
  if (second === undefined) return first;
  return others.length === 0 ? `${first} and ${second}` : `${first}, ${second} and ${others.length} more`;
}

/** A run goes by its time. */
export function runName({ created_ms }: Pick<Shapes["InvocationSummary"], "created_ms">): string {
  return `Run of ${moment(created_ms)}`;
}
