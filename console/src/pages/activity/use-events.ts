/** The requested events: pages of the audit log, and live events before them. */
import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import { api, take } from "@/api/client";
import { keepFollowing, type StreamEvent } from "@/api/stream";
import { type Asked, writeAsked } from "./filter";
import type { Event } from "./words";

const PAGE = 200;
/** At most this many live events are kept. */
const MOST_LIVE = 500;

export function useEvents(asked: Asked, isLive: boolean) {
  const key = writeAsked(asked).toString();
  const kept = useInfiniteQuery({
    queryKey: ["audit", key],
    queryFn: ({ pageParam, signal }) =>
      take(
        api.GET("/admin/api/audit", {
          params: { query: { ...asked, limit: PAGE, cursor: pageParam } },
          signal,
        }),
      ),
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });
  const live = useTail(key, isLive);
  const events = useMemo(() => {
    const pages = kept.data?.pages.flatMap((page) => page.events) ?? [];
    const known = new Set(pages.map((one) => one.event_id));
    return [...live.filter((one) => !known.has(one.event_id)), ...pages];
  }, [kept.data, live]);
  return { kept, events };
}

/** Live events, newest first. */
function useTail(key: string, isLive: boolean): readonly Event[] {
  const queries = useQueryClient();
  const [tail, setTail] = useState<readonly Event[]>([]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: events of one filter are not those of another
  useEffect(() => setTail([]), [key]);
  useEffect(() => {
    if (!isLive) return;
    const ending = new AbortController();
    const event = (one: StreamEvent) => {
      // Events between the first page and the start of the stream are on the first page now.
      if (one.event === "start") void queries.invalidateQueries({ queryKey: ["audit", key] });
      if (one.event === "event") {
        setTail((before) => [JSON.parse(one.data) as Event, ...before].slice(0, MOST_LIVE));
      }
    };
    void keepFollowing(() => `/admin/api/audit/events?${key}`, { event }, ending.signal);
    return () => ending.abort();
  }, [queries, key, isLive]);
  return tail;
}
