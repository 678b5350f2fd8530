/** What is typed for a tool and how its last call went. Kept while the console is open, so that a look at the approval or
 *  the audit log loses nothing. */
import { skipToken, useIsMutating, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import { ApiError, api, toError } from "@/api/client";
import { useTyped } from "@/api/typed";
import { type Field, fieldOf, type JsonObject } from "@/parts/schema-form-model";
import { isSame } from "@/parts/use-draft";
import type { Tool } from "../catalog/queries";
import { begin, type Typed, toForm, toJson } from "./arguments";
import type { Answer } from "./queries";

/** A call as it was sent. */
export interface Sent {
  readonly args: JsonObject;
  readonly task: string;
}

export interface Outcome extends Sent {
  /** Null: the call failed with `error`. */
  readonly answer: Answer | null;
  readonly error: unknown;
  /** As the audit log has it; empty: unknown. */
  readonly request: string;
}

interface Kept {
  readonly field: Field;
  readonly typed: Typed;
  readonly outcome: Outcome | null;
}

/** A failed call, with the request that the audit log knows it by. */
class CallFailed extends ApiError {
  constructor(
    of: ApiError,
    readonly request: string,
  ) {
    super(of.status, of.code, of.message, of.hint, of.data);
  }
}

async function send(tool: string, { args, task }: Sent, signal: AbortSignal): Promise<Answer> {
  const { data, error, response } = await api.POST("/api/v1/mcp/call", {
    params: { query: { tools: tool, ...(task ? { task } : {}) } },
    body: { name: tool, arguments: { ...args } },
    signal,
  });
  if (data !== undefined && response.ok) return data;
  throw new CallFailed(toError(response.status, error), response.headers.get("X-Request-Id") ?? "");
}

export function useCall(tool: Tool) {
  const queries = useQueryClient();
  const field = useMemo(() => fieldOf(tool.inputSchema), [tool.inputSchema]);
  const key = ["playground", tool.fullName];
  const kept = useQuery<Kept>({
    queryKey: key,
    queryFn: skipToken,
    initialData: { field, typed: begin(field), outcome: null },
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: Number.POSITIVE_INFINITY,
  }).data as Kept;
  const set = (part: Partial<Kept>) =>
    queries.setQueryData<Kept>(key, (old) => ({
      ...(old ?? { field, typed: begin(field), outcome: null }),
      ...part,
    }));
  // Kept twice: what is kept elsewhere comes back a moment later, which is too late for a field that is typed into.
  const [typed, setLocal] = useState(kept.typed);
  const setTyped = (next: Typed) => {
    setLocal(next);
    set({ field, typed: next });
  };
  const isOutdated = kept.field !== field && !isSame(kept.field, field);
  const current = isOutdated ? carriedOver(kept.field, typed, field) : typed;
  // biome-ignore lint/correctness/useExhaustiveDependencies: once for each new schema
  useEffect(() => {
    if (isOutdated) setTyped(current);
  }, [isOutdated, field]);
  const ending = useRef<AbortController | null>(null);
  const call = useMutation({
    mutationKey: key,
    mutationFn: (sent: Sent) => {
      ending.current = new AbortController();
      return send(tool.fullName, sent, ending.current.signal);
    },
    onMutate: () => set({ outcome: null }),
    onSuccess: (answer, sent) =>
      set({ outcome: { ...sent, answer, error: null, request: answer.request_id } }),
    onError: (error, sent) => {
      const request = error instanceof CallFailed ? error.request : "";
      set({ outcome: isStopped(error) ? null : { ...sent, answer: null, error, request } });
    },
  });
  useTyped(!isSame(current, begin(field)));
  return {
    field,
    typed: current,
    setTyped,
    outcome: kept.outcome,
    isRunning: useIsMutating({ mutationKey: key }) > 0,
    call: call.mutate,
    /** Undefined: the call was begun on an earlier visit of the page. */
    stop: call.isPending ? () => ending.current?.abort() : undefined,
  };
}

function isStopped(error: unknown): boolean {
  return error instanceof DOMException && error.name === "AbortError";
}

/** What was typed for an earlier schema of the tool, in the form of the present one where it fits. */
function carriedOver(before: Field, typed: Typed, now: Field): Typed {
  if (isSame(typed, begin(before))) return begin(now);
  const json = toJson(before, typed);
  return toForm(now, json) ?? json;
}
