/** What keys can reach, and when they were last used. */
import { queryOptions } from "@tanstack/react-query";
import { allPages } from "@/api/all-pages";
import { api, type Shapes, take } from "@/api/client";

/** What is fetched again after a key was written. */
export const CHANGED: readonly string[][] = [["key"], ["derived"], ["budgets"]];

/** The gateway composes the scopes of each ceiling: a request for more keys may take seconds. */
const PAGE = 100;

export interface KeyUsages {
  readonly byKey: ReadonlyMap<string, Shapes["KeyUsage"]>;
  readonly auditBeginsMs: number | null;
  readonly registered: number;
}

/** Of one key, or of all. */
export function usageQuery(key?: string) {
  return queryOptions({
    // Not derived: that is fetched again with every change of any record, and this takes long in large gateways.
    queryKey: ["key", "usage", key ?? null],
    staleTime: 5_000,
    queryFn: async ({ signal }): Promise<KeyUsages> => {
      const pages = await allPages((cursor) =>
        take(api.GET("/admin/api/key-usage", { params: { query: { key, limit: PAGE, cursor } }, signal })),
      );
      return {
        byKey: new Map(pages.flatMap((page) => page.keys).map((one) => [one.key_id, one])),
        auditBeginsMs: pages[0]?.audit_begins_ms ?? null,
        registered: pages[0]?.registered_tools ?? 0,
      };
    },
  });
}
