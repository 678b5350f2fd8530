/** The picks of this tab: they stay across pages. */
import { useCallback, useSyncExternalStore } from "react";
import { useMe } from "@/api/me";
import { encodePicks, NONE, type Picks, parsePicks } from "./picks";

const PLACE = "toolgate.picks";
const listeners = new Set<() => void>();

let seen: { place: string; text: string | null; picks: Picks } = { place: "", text: null, picks: NONE };

function current(place: string): Picks {
  const text = sessionStorage.getItem(place);
  if (place !== seen.place || text !== seen.text) seen = { place, text, picks: parsePicks(text) };
  return seen.picks;
}

function subscribe(tell: () => void): () => void {
  listeners.add(tell);
  return () => listeners.delete(tell);
}

/** The picks, and their setter. Each principal that logs in in this tab has separate picks. */
export function usePicks() {
  const place = `${PLACE}.${useMe().principal}`;
  const picks = useSyncExternalStore(subscribe, () => current(place));
  const keep = useCallback(
    (next: Picks) => {
      sessionStorage.setItem(place, encodePicks(next));
      for (const tell of listeners) tell();
    },
    [place],
  );
  return { picks, keep };
}
