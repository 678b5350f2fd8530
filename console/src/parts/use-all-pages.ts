/** Loads the pages of a list that a text is looked for in. */
import type { UseInfiniteQueryResult } from "@tanstack/react-query";
import { useEffect } from "react";

/** At most this many pages are loaded by themselves; more by a click. */
const MOST = 20;

type Pages = Pick<UseInfiniteQueryResult, "hasNextPage" | "isFetchingNextPage" | "fetchNextPage">;

/** While `isWanted`, loads the next page as long as there is one. `loaded`: the number of pages so far. */
export function useAllPages(pages: Pages, loaded: number, isWanted: boolean): void {
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = pages;
  const isDue = isWanted && hasNextPage && !isFetchingNextPage && loaded > 0 && loaded < MOST;
  useEffect(() => {
    if (isDue) void fetchNextPage();
  }, [isDue, fetchNextPage]);
}
