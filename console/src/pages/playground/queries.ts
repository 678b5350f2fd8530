/** What the playground asks for. */
import { queryOptions } from "@tanstack/react-query";
import { api, type Shapes, take } from "@/api/client";

const selection = (task: string) => (task ? { task } : {});

/** The tools of a task. The gateway audits each such list, so it is kept until a record changes. */
export const taskToolsQuery = (task: string) =>
  queryOptions({
    queryKey: ["derived", "playground", "tools", task],
    queryFn: ({ signal }) =>
      take(api.GET("/api/v1/mcp/tools", { params: { query: { ...selection(task), mode: "list" } }, signal })),
    staleTime: Number.POSITIVE_INFINITY,
    retry: false,
  });

/** Whether a task has a tool, and the URL of exactly that tool. */
export const toolScopeQuery = (tool: string, task: string) =>
  queryOptions({
    queryKey: ["derived", "playground", "scope", tool, task],
    queryFn: ({ signal }) =>
      take(api.GET("/api/v1/mcp/scope", { params: { query: { ...selection(task), tools: tool } }, signal })),
    retry: false,
  });

const TRIES = 15;
const PAUSE_MS = 700;
/** More than a chat makes. */
const MOST_CALLS = 100;

/** The audit record of a call. It appears a moment after the call, because nodes send records in batches. */
export const recordQuery = (request: string, { tool = "", place = 0 }) =>
  queryOptions({
    queryKey: ["audit", "call", request, tool, place],
    queryFn: ({ signal }) =>
      take(
        api.GET("/admin/api/audit", {
          params: { query: { request, type: "call", limit: MOST_CALLS, ...(tool ? { tool } : {}) } },
          signal,
        }),
      ),
    refetchInterval: (query) => {
      const { data, dataUpdateCount } = query.state;
      return (data && data.events.length > place) || dataUpdateCount >= TRIES ? false : PAUSE_MS;
    },
    staleTime: Number.POSITIVE_INFINITY,
  });

export type Answer = Shapes["CallResponse"];

/** The state of an approval, as long as someone may decide on it. */
export const approvalQuery = (id: string) =>
  queryOptions({
    queryKey: ["approvals", id],
    queryFn: ({ signal }) =>
      take(api.GET("/admin/api/approvals/{approval_id}", { params: { path: { approval_id: id } }, signal })),
    refetchInterval: (query) => (query.state.data && query.state.data.state !== "pending" ? false : 3_000),
    retry: false,
  });
