/** What a plan says about tasks that it creates. */
import type { components } from "@/api/schema";

type Shapes = components["schemas"];

type Seen = Pick<Shapes["TaskPlan"], "task_id" | "added" | "refusal" | "problem">;

interface Planned {
  readonly changes: readonly Pick<Shapes["ChangeShown"], "kind" | "operation" | "id">[];
  readonly tasks: readonly Seen[];
}

/** The ids of tasks that the plan creates. */
export function newTasks(plan: Planned): string[] {
  return plan.changes.filter((one) => one.kind === "task" && one.operation === "added").map((one) => one.id);
}

/** Of the new tasks, those whose callers would see nothing, although nothing is wrong with them. */
export function blindTasks(plan: Planned): string[] {
  return newTasks(plan).filter((id) => {
    const sides = plan.tasks.filter((one) => one.task_id === id);
    return sides.every((one) => one.added.length === 0 && one.refusal === null && one.problem === null);
  });
}

type Plan = Pick<Shapes["PlanResponse"], "changes" | "tasks" | "unlisted">;

function patternsOf(change: Plan["changes"][number]): number {
  const allowed = change.fields.find((one) => one.field.startsWith("allowed_tools"))?.after;
  return Array.isArray(allowed) ? allowed.length : 0;
}

/** What new servers bring; empty: no new server, or they are listed with what tasks gain. `offered`: how many tools of
 *  the only one are ticked, if that is known. */
export function newServerWords(plan: Plan, offered?: number): string {
  const added = plan.changes.filter((one) => one.kind === "server" && one.operation === "added");
  if (added.length === 0) return "";
  const rest = plan.tasks.some((one) => one.task_id !== null) ? "." : "; no task changes.";
  const open = added.filter((one) => patternsOf(one) > 0).length;
  if (offered === 0 || open === 0)
    return `Offers no tools: ${offered === undefined ? "none is allowed" : "none is ticked"}${rest}`;
  if (offered !== undefined)
    return `Offers ${offered === 1 ? "1 tool" : `${offered} tools`} to callers without a task${rest}`;
  if (plan.unlisted.length === 0) return "";
  const what =
    added.length === 1 ? "Offers its allowed tools" : `${open} of the new servers offer their allowed tools`;
  return `${what} to callers without a task, once connected${rest}`;
}
