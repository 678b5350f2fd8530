/** Server health, by colour and word. */
import { Badge } from "@mantine/core";
import type { HealthState } from "./standing";

export { type HealthState, STATES, standing } from "./standing";

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
