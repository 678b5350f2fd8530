/** What the pages of servers ask for, beyond the list that others show too. */
import { queryOptions } from "@tanstack/react-query";
import { api, take, takeTagged } from "@/api/client";

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

/** What was called in the last day, by server. A gateway that keeps no audit does not know. */
export const dayQuery = queryOptions({
  queryKey: ["activity", "servers", "day"],
  queryFn: async ({ signal }) =>
    (await take(api.GET("/admin/api/activity", { params: { query: { buckets: 1 } }, signal }))).servers,
  refetchInterval: ACTIVITY_MS,
  retry: false,
});

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
