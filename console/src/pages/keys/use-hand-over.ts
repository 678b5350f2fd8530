/** Makes what a hand-over needs: the task if it is new, then the key. Says exactly what is there if a step fails. */
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { ApiError, api, type Shapes, take } from "@/api/client";
import { keysQuery } from "@/api/records";
import { asPlanned } from "@/parts/use-writing";
import { CHANGED } from "./queries";

export interface Wanted {
  readonly key: Shapes["KeySent"];
  /** Null: the task exists. */
  readonly task: { readonly id: string; readonly body: object; readonly plan: string } | null;
}

/** A step that failed, and what is there all the same. */
export class StepFailed extends Error {
  constructor(
    readonly step: "task" | "key",
    readonly wanted: Wanted,
    /** Whether the key is there, and its secret lost; null: unknown. */
    readonly isKeyThere: boolean | null,
    override readonly cause: unknown,
  ) {
    super(cause instanceof Error ? cause.message : String(cause));
  }
}

export function useHandOver(onTask: (id: string) => void) {
  const queries = useQueryClient();
  return useMutation({
    // Invariant: only the page that shows the secret holds it.
    gcTime: 0,
    mutationFn: async (wanted: Wanted) => {
      const { key, task } = wanted;
      if (task !== null) {
        await putTask(task).catch((cause: unknown) => {
          throw new StepFailed("task", wanted, false, cause);
        });
        onTask(task.id);
      }
      try {
        return await take(api.POST("/admin/api/keys", { body: key }));
      } catch (cause) {
        throw new StepFailed("key", wanted, await isThere(key.key_id, cause), cause);
      }
    },
    onSettled: () => {
      for (const queryKey of [...CHANGED, ["task"]]) void queries.invalidateQueries({ queryKey });
    },
  });

  /** If the response was lost, the key may be there, with a secret that no one has seen. */
  async function isThere(keyId: string, cause: unknown): Promise<boolean | null> {
    if (cause instanceof ApiError && cause.status >= 400 && cause.status < 500) return false;
    const keys = await queries.fetchQuery({ ...keysQuery, staleTime: 0, retry: false }).catch(() => null);
    return keys === null ? null : keys.some((one) => one.key_id === keyId);
  }
}

function putTask({ id, body, plan }: NonNullable<Wanted["task"]>) {
  return take(
    api.PUT("/admin/api/tasks/{task_id}", {
      params: { path: { task_id: id }, header: asPlanned(plan, "") },
      body: body as Shapes["TaskSent"],
    }),
  );
}

export function revokeKey(keyId: string) {
  return take(api.DELETE("/admin/api/keys/{key_id}", { params: { path: { key_id: keyId } } }));
}
