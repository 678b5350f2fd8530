/** Whether there is unsaved input: a credential that expires meanwhile must not discard it. */
import { useEffect } from "react";

const holders = new Set<object>();

/** While `isTyped`, the page stays as it is, even if the login ends. */
export function useTyped(isTyped: boolean): void {
  useEffect(() => {
    if (!isTyped) return;
    const holder = {};
    holders.add(holder);
    return () => {
      holders.delete(holder);
    };
  }, [isTyped]);
}

export function isAnythingTyped(): boolean {
  return holders.size > 0;
}
