/** The health of a server, here or on its nodes. */
import type { components } from "@/api/schema";

type Shapes = components["schemas"];

export type HealthState = Shapes["ServerHealth"]["state"];

/** In the order in which they are shown. */
export const STATES: readonly HealthState[] = [
  "connected",
  "starting",
  "degraded",
  "down",
  "idle",
  "disabled",
];

/** Of nodes that see a server differently, the first of these counts. */
const ORDER: readonly HealthState[] = ["down", "degraded", "starting", "idle", "connected", "disabled"];

export interface Standing {
  /** Undefined: no process runs it. */
  readonly state: HealthState | undefined;
  readonly lastError: string;
  /** What a start waits for, or what to do about the error. */
  readonly hint: string;
  readonly tools: number;
}

/** The health of a server here or, if this process does not run it, on its worst node. */
export function standing({ health, nodes }: Pick<Shapes["ServerShown"], "health" | "nodes">): Standing {
  const [worst] = [...nodes].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));
  const seen = health ?? worst;
  return {
    state: seen?.state,
    lastError: seen?.last_error ?? "",
    hint: seen?.hint ?? "",
    tools: seen?.tools ?? 0,
  };
}
