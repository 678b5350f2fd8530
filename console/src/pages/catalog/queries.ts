/** What the catalog asks for. */
import { infiniteQueryOptions, keepPreviousData, queryOptions } from "@tanstack/react-query";
import { allPages } from "@/api/all-pages";
import { ApiError, api, type Shapes, take } from "@/api/client";
import type { Filters } from "./filters";
import { inParts } from "./picks";

export type Tool = Shapes["CatalogToolShown"];
export type Found = Shapes["ToolFound"];
export type CatalogPackage = Shapes["CatalogPackageShown"];

const PAGE = 1000;
const FOUND = 50;
/** The catalog follows the registry a moment later, and no watch tells when. */
const FOLLOWS_MS = 5_000;

export const categoriesQuery = queryOptions({
  queryKey: ["derived", "catalog", "categories"],
  queryFn: async ({ signal }) => {
    const pages = await allPages((cursor) =>
      take(api.GET("/api/catalog", { params: { query: { limit: PAGE, cursor } }, signal })),
    );
    return pages.flatMap((page) => page.categories);
  },
  refetchInterval: FOLLOWS_MS,
});

export const categoryQuery = (category: string) =>
  queryOptions({
    queryKey: ["derived", "catalog", "category", category],
    queryFn: async ({ signal }) => {
      const pages = await allPages((cursor) =>
        take(
          api.GET("/api/catalog/{category}", {
            params: { path: { category }, query: { limit: PAGE, cursor } },
            signal,
          }),
        ),
      );
      return pages.flatMap((page) => page.packages);
    },
    refetchInterval: FOLLOWS_MS,
  });

/** The tools of a package or server, with their schemas. */
export const toolsQuery = (id: string) =>
  queryOptions({
    queryKey: ["derived", "catalog", "tools", id],
    queryFn: async ({ signal }) => {
      const pages = await allPages((cursor) =>
        take(
          api.GET("/api/catalog/{package}/tools", {
            params: { path: { package: id }, query: { limit: PAGE, cursor } },
            signal,
          }),
        ),
      );
      return pages.flatMap((page) => page.tools);
    },
  });

export const searchQuery = (filters: Filters) =>
  infiniteQueryOptions({
    queryKey: ["derived", "catalog", "search", filters],
    queryFn: ({ pageParam, signal }) => {
      const { q, category, tag, server, isReadOnly } = filters;
      const given = { q, category, tag, server, readOnly: isReadOnly ? ("true" as const) : undefined };
      const query = Object.fromEntries(Object.entries(given).filter(([, value]) => value));
      return take(
        api.GET("/api/catalog/search", {
          params: { query: { ...query, limit: FOUND, cursor: pageParam } },
          signal,
        }),
      );
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (last) => last.next_cursor ?? undefined,
    placeholderData: keepPreviousData,
  });

/** What is installed and was uploaded of a package; null where the server runs from none. */
export const packageQuery = (id: string) =>
  queryOptions({
    queryKey: ["derived", "package", id],
    queryFn: async ({ signal }) => {
      try {
        return await take(
          api.GET("/api/packages/{package_id}", { params: { path: { package_id: id } }, signal }),
        );
      } catch (error) {
        if (error instanceof ApiError && error.status === 404) return null;
        throw error;
      }
    },
  });

/** The servers that one can reach: for filters. */
export const reachQuery = queryOptions({
  queryKey: ["derived", "reach"],
  queryFn: async ({ signal }) => {
    const pages = await allPages((cursor) =>
      take(api.GET("/api/v1/mcp/servers", { params: { query: { limit: PAGE, cursor } }, signal })),
    );
    return pages.flatMap((page) => page.servers);
  },
});

export interface PickedScope {
  /** What each tool costs that is seen; others are not. */
  readonly prices: ReadonlyMap<string, number>;
  readonly registeredTools: number;
  readonly registeredTokens: number;
  readonly refusal: string;
}

/** What is seen of these tools. Of none: what there is in all. A long list is asked for in parts. */
export const scopeQuery = (tools: readonly string[], task: string) =>
  queryOptions({
    queryKey: ["derived", "scope", "picked", tools, task],
    queryFn: async ({ signal }): Promise<PickedScope> => {
      const parts = await Promise.all(
        inParts(tools).map((part) => {
          const query = { tools: part, ...(task ? { task } : {}) };
          return take(api.GET("/api/v1/mcp/scope", { params: { query }, signal }));
        }),
      );
      return {
        prices: new Map(parts.flatMap((one) => Object.entries(one.prices))),
        registeredTools: parts[0]?.registered_tools ?? 0,
        registeredTokens: parts[0]?.registered_tokens ?? 0,
        refusal: parts.find((one) => one.refusal)?.refusal?.message ?? "",
      };
    },
    placeholderData: keepPreviousData,
  });

/** What a URL selects. */
export interface Selected {
  readonly servers?: string;
  readonly tools?: string;
  readonly task?: string;
}

/** What a client gets at the URL that selects this, and what the gateway warns of there. */
export const selectedQuery = (query: Selected) =>
  queryOptions({
    queryKey: ["derived", "scope", "selected", query],
    queryFn: ({ signal }) => take(api.GET("/api/v1/mcp/scope", { params: { query }, signal })),
  });

/** The quality of the catalog, with all packages or those that depend on the summary fallback. */
export const qualityQuery = (isAll: boolean) =>
  queryOptions({
    queryKey: ["derived", "catalog", "quality", isAll],
    queryFn: async ({ signal }) => {
      const query = { limit: PAGE, ...(isAll ? {} : { dependent: true }) };
      const pages = await allPages((cursor) =>
        take(api.GET("/api/v1/catalog/quality", { params: { query: { ...query, cursor } }, signal })),
      );
      const [first, ...rest] = pages as [
        Shapes["CatalogQualityResponse"],
        ...Shapes["CatalogQualityResponse"][],
      ];
      return { ...first, packages: [first, ...rest].flatMap((page) => page.packages) };
    },
    refetchInterval: FOLLOWS_MS,
    placeholderData: keepPreviousData,
  });
