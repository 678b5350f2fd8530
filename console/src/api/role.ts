/** The roles of callers, and which reaches which. */
import type { components } from "./schema";

export type Role = components["schemas"]["MeShown"]["role"];

const ORDER: readonly Role[] = ["agent", "viewer", "publisher", "admin"];

/** Whether `role` is `needed` or above it. `node` is outside the order. */
export function reaches(role: Role, needed: Role): boolean {
  return ORDER.includes(role) && ORDER.indexOf(role) >= ORDER.indexOf(needed);
}
