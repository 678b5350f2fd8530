/** The credential of this tab: kept for the tab alone, sent with every request, and never shown. */
import { useSyncExternalStore } from "react";

const PLACE = "toolgate.credential";
const listeners = new Set<() => void>();

export function credential(): string | null {
  return sessionStorage.getItem(PLACE);
}

export function setCredential(token: string | null): void {
  if (token === null) sessionStorage.removeItem(PLACE);
  else sessionStorage.setItem(PLACE, token);
  for (const tell of listeners) tell();
}

function subscribe(tell: () => void): () => void {
  listeners.add(tell);
  return () => listeners.delete(tell);
}

/** The credential, and a new rendering whenever it changes. */
export function useCredential(): string | null {
  return useSyncExternalStore(subscribe, credential);
}
