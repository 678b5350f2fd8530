/** Integrations as the page holds them, and what their states are called. */
import type { Shapes } from "@/api/client";

export type Integration = Shapes["IntegrationShown"];
export type State = Integration["state"];

export interface Integrations {
  /** What the caller has of a server that it has not chosen for. */
  readonly default: State;
  readonly all: readonly Integration[];
}

export const STATES: Readonly<Record<State, { label: string; said: string }>> = {
  off: { label: "Off", said: "off" },
  read_only: { label: "Read-only", said: "on for its read-only tools" },
  on: { label: "All", said: "on with all its tools" },
};

/** Those whose id or name holds the text, whatever its case. */
export function matching(all: readonly Integration[], text: string): readonly Integration[] {
  const wanted = text.trim().toLowerCase();
  return all.filter((one) => `${one.server_id}\n${one.display_name}`.toLowerCase().includes(wanted));
}

/** An integration as its key has it before the caller chooses. */
export function afterReset(one: Integration, byDefault: State): Integration {
  return { ...one, state: byDefault, chosen: false };
}
