/** Live updates: the registry's watch, as queries that are asked again.
 *
 * A query's key begins with the kind of record it shows (`["server", …]`), or with `"derived"` where it follows
 * from several: those are asked again on every change.
 */
import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { keepFollowing, type StreamEvent } from "./stream";

export type Kind = "server" | "task" | "profile" | "pin" | "chat_upstream" | "key";

interface Batch {
  readonly upserts?: readonly { kind: string }[];
  readonly deletes?: readonly { kind: string }[];
}

/** The kinds that an event of the watch is about. */
export function kindsOf(event: StreamEvent): string[] {
  if (event.event !== "change") return [];
  const batch = JSON.parse(event.data) as Batch;
  return [...new Set([...(batch.upserts ?? []), ...(batch.deletes ?? [])].map((one) => one.kind))];
}

function refresh(queries: QueryClient, kinds: readonly string[]): void {
  for (const kind of kinds) void queries.invalidateQueries({ queryKey: [kind] });
  if (kinds.length > 0) void queries.invalidateQueries({ queryKey: ["derived"] });
}

/** Keep the queries current while the component is mounted. False while the watch is broken. */
export function useLive(isAllowed: boolean): boolean {
  const queries = useQueryClient();
  const [isLive, setLive] = useState(false);
  useEffect(() => {
    if (!isAllowed) return;
    const ending = new AbortController();
    let isBroken = false;
    const on = {
      event: (event: StreamEvent) => {
        setLive(true);
        refresh(queries, kindsOf(event));
        // Queries sent meanwhile failed, and events of that time were missed.
        if (isBroken) void queries.invalidateQueries();
        isBroken = false;
      },
      gap: () => {
        isBroken = true;
        setLive(false);
        void queries.invalidateQueries();
      },
    };
    void keepFollowing(() => "/admin/api/watch", on, ending.signal);
    return () => ending.abort();
  }, [queries, isAllowed]);
  return isLive;
}
