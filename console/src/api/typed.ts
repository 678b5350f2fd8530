/** Whether something is typed that is not saved: a credential that ends meanwhile must not take it along. */
import { useEffect } from "react";

const holders = new Set<object>();

/** As long as `isTyped`, the page stays as it is, whatever becomes of the login. */
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
