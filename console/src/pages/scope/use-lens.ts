/** The state of the lens, kept in the URL, and the gateway's responses for it. */
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useCallback, useMemo } from "react";
import { useSearchParams } from "react-router";
import { api, take } from "@/api/client";
import { type Filter, itemsOf } from "./decisions";
import { parseView, queryOf, type Selection, type View, viewParams } from "./selection";

/** The view in the address, and how to change a part of it. */
export function useView() {
  const [params, setParams] = useSearchParams();
  const view = useMemo(() => parseView(params), [params]);
  const change = useCallback(
    (part: Partial<View>) =>
      setParams((now) => viewParams({ ...parseView(now), ...part }), { replace: true }),
    [setParams],
  );
  const select = useCallback(
    (part: Partial<Selection>) => change({ selection: { ...view.selection, ...part } }),
    [change, view.selection],
  );
  const filter = useCallback(
    (part: Partial<Filter>) => change({ filter: { ...view.filter, ...part } }),
    [change, view.filter],
  );
  return { view, change, select, filter };
}

/** Every decision about the selected scope. */
export function useExplanation(selection: Selection) {
  const query = queryOf(selection);
  const answer = useQuery({
    queryKey: ["derived", "explain", query],
    queryFn: ({ signal }) => take(api.GET("/api/v1/mcp/explain", { params: { query }, signal })),
    placeholderData: keepPreviousData,
  });
  const items = useMemo(() => itemsOf(answer.data?.tools ?? []), [answer.data]);
  return { answer, items };
}

/** The decision about a resource that no server lists. */
export function useUnlisted(selection: Selection, asked: { server: string; tool: string } | null) {
  const query = { ...queryOf(selection), ...asked };
  return useQuery({
    queryKey: ["derived", "explain", "unlisted", query],
    queryFn: async ({ signal }) => {
      const found = await take(api.GET("/api/v1/mcp/explain", { params: { query }, signal }));
      return itemsOf(found.tools)[0] ?? null;
    },
    enabled: asked !== null,
  });
}

/** The MCP endpoint's URL of the selected scope. */
export function useScopeUrl(selection: Selection) {
  const { key: _key, ...query } = queryOf(selection);
  return useQuery({
    queryKey: ["derived", "scope", query],
    queryFn: ({ signal }) => take(api.GET("/api/v1/mcp/scope", { params: { query }, signal })),
    select: (scope) => scope.url,
  });
}
