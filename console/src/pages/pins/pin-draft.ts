/** The pin that an approval writes: exactly the definitions that were shown. */
import type { Shapes } from "@/api/client";

export type Pin = Shapes["PinShown"];
export type Difference = Shapes["ToolDifference"];
export type Preview = Shapes["ToolPreview"];

/** Identifies a difference as shown: if the definition changes again, it is another. */
export function markOf(one: Difference): string {
  return `${one.tool}@${one.listed ?? ""}`;
}

/** Whether there is something to approve: what the server lists now, or that it lists it no more. */
export function isApprovable(one: Difference): boolean {
  return one.listed !== null || one.state === "missing";
}

/** The pin with these differences approved; the rest is unchanged. */
export function approve(pin: Pin, differences: readonly Difference[]): Shapes["PinSent"] {
  const tools = { ...pin.tools };
  const changed: Record<string, null> = {};
  for (const one of differences.filter(isApprovable)) {
    if (one.was !== null) delete tools[one.was];
    if (one.listed === null) delete tools[one.tool];
    else tools[one.tool] = one.listed;
    if (one.tool in pin.changed) changed[one.tool] = null;
  }
  return { server_id: pin.server_id, tools, changed };
}

/** The tools of an unpinned server that can be approved: those listed, or quarantined only. */
export function approvable(previews: readonly Preview[]): Preview[] {
  return previews.filter((one) => one.digest !== null && (one.allowed || one.reason === "quarantined"));
}

export function firstPin(serverId: string, previews: readonly Preview[]): Shapes["PinSent"] {
  const tools: Record<string, string> = {};
  for (const one of approvable(previews)) if (one.digest !== null) tools[one.tool] = one.digest;
  return { server_id: serverId, tools };
}

export interface Row {
  readonly serverId: string;
  readonly pin: Pin | null;
}

/** Every server with its pin, if it has one; and pins whose server is gone. */
export function rowsOf(serverIds: readonly string[], pins: readonly Pin[]): Row[] {
  const byServer = new Map(pins.map((one) => [one.server_id, one]));
  const all = new Set([...serverIds, ...byServer.keys()]);
  return [...all].sort().map((serverId) => ({ serverId, pin: byServer.get(serverId) ?? null }));
}
