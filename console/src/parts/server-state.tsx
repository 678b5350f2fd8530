/** Server health, by colour and word. */
import { Badge } from "@mantine/core";
import type { Shapes } from "@/api/client";

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

interface Standing {
  /** Undefined: no process runs it. */
  readonly state: HealthState | undefined;
  readonly lastError: string;
  readonly tools: number;
}

/** The health of a server here or, if this process does not run it, on its worst node. */
export function standing({ health, nodes }: Pick<Shapes["ServerShown"], "health" | "nodes">): Standing {
  const [worst] = [...nodes].sort((a, b) => ORDER.indexOf(a.state) - ORDER.indexOf(b.state));
  const seen = health ?? worst;
  return { state: seen?.state, lastError: seen?.last_error ?? "", tools: seen?.tools ?? 0 };
}

const COLOURS: Readonly<Record<HealthState, string>> = {
  connected: "green",
  starting: "yellow",
  degraded: "orange",
  down: "red",
  idle: "blue",
  disabled: "gray",
};

/** The label of an unknown state. */
export const NOT_KNOWN = "unknown";

export function StateBadge({ state }: { readonly state: HealthState | undefined }) {
  return (
    <Badge color={state === undefined ? "gray" : COLOURS[state]} variant="light" tt="none">
      {state ?? NOT_KNOWN}
    </Badge>
  );
}
