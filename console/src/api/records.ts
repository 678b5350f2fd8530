/** The lists that several pages show, each fetched once. */
import { queryOptions } from "@tanstack/react-query";
import { allPages } from "./all-pages";
import { api, take } from "./client";

const PAGE = 1000;
/** Health is not a record, so no watch reports it; servers are polled. */
const HEALTH_MS = 5_000;

export const serversQuery = queryOptions({
  queryKey: ["server", "all"],
  queryFn: async ({ signal }) => {
    const pages = await allPages((cursor) =>
      take(api.GET("/admin/api/mcp/servers", { params: { query: { limit: PAGE, cursor } }, signal })),
    );
    return pages.flatMap((page) => page.servers);
  },
  refetchInterval: HEALTH_MS,
});

export const tasksQuery = queryOptions({
  queryKey: ["task", "all"],
  queryFn: async ({ signal }) => {
    const pages = await allPages((cursor) =>
      take(api.GET("/admin/api/tasks", { params: { query: { limit: PAGE, cursor } }, signal })),
    );
    return pages.flatMap((page) => page.tasks);
  },
});

export const profilesQuery = queryOptions({
  queryKey: ["profile", "all"],
  queryFn: async ({ signal }) => {
    const pages = await allPages((cursor) =>
      take(api.GET("/admin/api/profiles", { params: { query: { limit: PAGE, cursor } }, signal })),
    );
    return pages.flatMap((page) => page.profiles);
  },
});

export const keysQuery = queryOptions({
  queryKey: ["key", "all"],
  queryFn: async ({ signal }) => {
    const pages = await allPages((cursor) =>
      take(api.GET("/admin/api/keys", { params: { query: { limit: PAGE, cursor } }, signal })),
    );
    return pages.flatMap((page) => page.keys);
  },
});

export const nodesQuery = queryOptions({
  queryKey: ["nodes"],
  queryFn: ({ signal }) => take(api.GET("/admin/api/nodes", { signal })),
  refetchInterval: HEALTH_MS,
});

/** With its pending changes, which are not records either. */
export const pinsQuery = queryOptions({
  queryKey: ["pin", "all"],
  queryFn: async ({ signal }) => {
    const pages = await allPages((cursor) =>
      take(api.GET("/admin/api/pins", { params: { query: { limit: PAGE, cursor } }, signal })),
    );
    return pages.flatMap((page) => page.pins);
  },
  refetchInterval: HEALTH_MS,
});
