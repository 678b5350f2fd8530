/** What the pages of servers ask for, beyond the list that others show too. */
import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, take, takeTagged } from "@/api/client";
import type { TimeRange } from "@/parts/time-range";

const HEALTH_MS = 5_000;
/** A user who has just saved a server waits for it. */
const SOON_MS = 1_000;
const ACTIVITY_MS = 30_000;

/** One server with its health, and the ETag to change it by. */
export function serverQuery(serverId: string) {
  return queryOptions({
    queryKey: ["server", serverId],
    queryFn: ({ signal }) =>
      takeTagged(
        api.GET("/admin/api/mcp/servers/{server_id}", { params: { path: { server_id: serverId } }, signal }),
      ),
    refetchInterval: (query) => (query.state.data?.record.health?.state === "idle" ? SOON_MS : HEALTH_MS),
  });
}

/** What was called in the shared time range, by server. A gateway that keeps no audit does not know. */
export function callsQuery({ range, ms }: Pick<TimeRange, "range" | "ms">) {
  return queryOptions({
    queryKey: ["activity", "servers", range],
    queryFn: async ({ signal }) => {
      const query = { since: Date.now() - ms, buckets: 1 };
      return (await take(api.GET("/admin/api/activity", { params: { query }, signal }))).servers;
    },
    refetchInterval: ACTIVITY_MS,
    placeholderData: keepPreviousData,
    retry: false,
  });
}

/** The tools of a server after filtering, and what a task gets of them. */
export function previewQuery(serverId: string, task: string) {
  return queryOptions({
    queryKey: ["derived", "preview", serverId, task],
    queryFn: ({ signal }) =>
      take(
        api.GET("/admin/api/mcp/servers/{server_id}/tools", {
          params: { path: { server_id: serverId }, query: task === "" ? {} : { task } },
          signal,
        }),
      ),
  });
}
