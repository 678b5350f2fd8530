/** What needs a person, computed from records. */
import type { components } from "@/api/schema";
import { standing } from "./standing";

type Shapes = components["schemas"];

/** A credential that ends within this time should be replaced now. */
export const SOON_MS = 7 * 86_400_000;

type Server = Shapes["ServerShown"];
type Pin = Shapes["PinShown"];
type Key = Shapes["KeyShown"];
type Finding = Shapes["FindingShown"];
type Approval = Shapes["ApprovalShown"];

export interface Attention {
  /** Servers that cannot be used, by ID. */
  readonly down: readonly Server[];
  /** Servers whose login has ended or ends soon. */
  readonly logins: readonly Server[];
  readonly approvals: readonly Approval[];
  /** Pins with tools that changed since they were approved. */
  readonly pins: readonly Pin[];
  readonly keys: readonly Key[];
  readonly findings: readonly Finding[];
}

/** Whether a moment is past, or near. Null: it never comes. */
export function endsSoon(seconds: number | null | undefined, now: number): boolean {
  return seconds !== null && seconds !== undefined && seconds * 1_000 < now + SOON_MS;
}

function needsLogin({ login }: Server, now: number): boolean {
  return login !== null && !login.renews && endsSoon(login.expires_at_s, now);
}

/** The parts of `Attention` that follow from records. */
export function attentionOf(
  found: {
    readonly servers: readonly Server[];
    readonly pins: readonly Pin[];
    readonly keys: readonly Key[];
    readonly findings: readonly Finding[];
    readonly approvals: readonly Approval[];
  },
  now: number,
): Attention {
  const byId = (a: Server, b: Server) => a.server_id.localeCompare(b.server_id);
  return {
    down: found.servers.filter((one) => standing(one).state === "down").sort(byId),
    logins: found.servers.filter((one) => needsLogin(one, now)).sort(byId),
    approvals: found.approvals,
    pins: found.pins.filter((one) => one.waiting.length > 0),
    keys: found.keys.filter((one) => endsSoon(one.expires_at_s, now)),
    findings: found.findings,
  };
}
