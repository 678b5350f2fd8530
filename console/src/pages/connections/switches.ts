/** Integrations as the page holds them: what their states are called, and what the caller's own login is. */
import type { Shapes } from "@/api/client";

export const INTEGRATIONS_KEY = ["integrations"];

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

/** The caller's own login to a server. `none`: the server needs none. */
export function loginState(
  { needs_login, login }: Pick<Integration, "needs_login" | "login">,
  nowMs: number,
): "none" | "out" | "over" | "in" {
  if (!needs_login) return "none";
  if (login === null) return "out";
  const isOver = login.expires_at_s !== null && !login.renews && login.expires_at_s * 1000 <= nowMs;
  return isOver ? "over" : "in";
}

/** The task to look at first: that of the URL, of the key, or the first that the key is bound to. */
export function firstTask(
  asked: string | null,
  me: Pick<Shapes["MeShown"], "default_task" | "ceiling">,
): string {
  return asked ?? me.default_task ?? me.ceiling.tasks?.[0] ?? "";
}
