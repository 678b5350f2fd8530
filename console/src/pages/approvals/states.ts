/** How an approval stands, in words and colours, and which of them a list is asked for. */
import type { Shapes } from "@/api/client";

export type Approval = Shapes["ApprovalShown"];
export type State = Approval["state"];

/** Nobody tells of new questions, so they are looked for. */
export const LOOK_MS = 3_000;

export const STATES: readonly { value: State | "all"; label: string }[] = [
  { value: "pending", label: "Those that wait" },
  { value: "approved", label: "Approved, not called yet" },
  { value: "used", label: "Approved and called" },
  { value: "denied", label: "Denied" },
  { value: "expired", label: "Expired" },
  { value: "all", label: "All" },
];

export const COLOURS: Readonly<Record<State, string>> = {
  pending: "yellow",
  approved: "green",
  used: "teal",
  denied: "red",
  expired: "gray",
};

/** The state that a query asks for: those that wait, unless it says another. */
export function askedState(text: string | null): State | "all" {
  return STATES.find((one) => one.value === text)?.value ?? "pending";
}

interface Who {
  readonly principal: string;
  readonly by: string;
}

/** Why `who` may not approve it; null: it may. The local administrator could change the policy as well. */
export function whyNotApprove(approval: Pick<Approval, "principal">, who: Who): string | null {
  const isOwn = approval.principal === who.principal && who.by !== "loopback";
  return isOwn ? "Nobody approves a call of its own. You may deny it." : null;
}

/** As what somebody decided: a person at the console or the command line, the webhook, or whoever called, in place. */
export function decidedAs(approval: Pick<Approval, "principal" | "decided_by">): string | null {
  const by = approval.decided_by ?? "";
  if (by === "webhook" || by.startsWith("webhook:")) return "through the webhook";
  return by === approval.principal ? "who called" : null;
}
