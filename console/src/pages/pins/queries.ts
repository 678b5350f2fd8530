/** What the pages of pins ask for. */
import { queryOptions } from "@tanstack/react-query";
import { api, take, takeTagged } from "@/api/client";

/** A server's tool list is not a record, so no watch reports it. */
const LOOK_MS = 5_000;

export function pinQuery(serverId: string) {
  return queryOptions({
    queryKey: ["pin", serverId],
    queryFn: ({ signal }) =>
      takeTagged(
        api.GET("/admin/api/pins/{server_id}", { params: { path: { server_id: serverId } }, signal }),
      ),
  });
}

export function differencesQuery(serverId: string, tool?: string) {
  return queryOptions({
    queryKey: ["pin", serverId, "differences", tool ?? null],
    queryFn: async ({ signal }) => {
      const params = { path: { server_id: serverId }, query: { tool } };
      const answer = await take(api.GET("/admin/api/pins/{server_id}/diff", { params, signal }));
      // Without `since` it is the definitions that are compared.
      return "tools" in answer ? answer.tools : [];
    },
    refetchInterval: LOOK_MS,
  });
}

export function previewQuery(serverId: string) {
  return queryOptions({
    queryKey: ["server", serverId, "tools"],
    queryFn: ({ signal }) =>
      take(
        api.GET("/admin/api/mcp/servers/{server_id}/tools", {
          params: { path: { server_id: serverId } },
          signal,
        }),
      ),
  });
}
