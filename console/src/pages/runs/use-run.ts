/** A run, followed as it goes. */
import { useEffect, useState } from "react";
import { keepFollowing } from "@/api/stream";
import { type Followed, lastSeq, NOTHING_YET, noteEvent } from "./run-log";

/** What is known of the run; more of it, until it has ended. */
export function useRun(taskId: string, invocationId: string): Followed {
  const [followed, setFollowed] = useState(NOTHING_YET);
  useEffect(() => {
    const ending = new AbortController();
    const base = `/api/v1/tasks/${encodeURIComponent(taskId)}/invocations/${encodeURIComponent(invocationId)}`;
    let known = NOTHING_YET;
    setFollowed(known);
    const event = (one: Parameters<typeof noteEvent>[1]) => {
      known = noteEvent(known, one);
      setFollowed(known);
      if (known.ended !== null || known.broken !== null) ending.abort();
    };
    void keepFollowing(() => `${base}/events?after=${lastSeq(known)}`, { event }, ending.signal);
    return () => ending.abort();
  }, [taskId, invocationId]);
  return followed;
}
