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
