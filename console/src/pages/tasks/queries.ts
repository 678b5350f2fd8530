/** Queries about tasks, apart from the records. */
import { queryOptions } from "@tanstack/react-query";
import { api, take, takeTagged } from "@/api/client";

export const overviewQuery = queryOptions({
  queryKey: ["derived", "tasks-overview"],
  queryFn: ({ signal }) => take(api.GET("/admin/api/mcp/tasks-overview", { signal })),
});

export const profilesOverviewQuery = queryOptions({
  queryKey: ["derived", "profiles-overview"],
  queryFn: ({ signal }) => take(api.GET("/admin/api/mcp/profiles-overview", { signal })),
});

export const taskQuery = (id: string) =>
  queryOptions({
    queryKey: ["task", id],
    queryFn: ({ signal }) =>
      takeTagged(api.GET("/admin/api/tasks/{task_id}", { params: { path: { task_id: id } }, signal })),
  });

export const toolsQuery = (task: string) =>
  queryOptions({
    queryKey: ["derived", "tools", task],
    queryFn: ({ signal }) => take(api.GET("/api/v1/mcp/tools", { params: { query: { task } }, signal })),
  });
