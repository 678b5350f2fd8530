/** The states of approvals: words, colours, and the filter. */
import type { Shapes } from "@/api/client";

export type Approval = Shapes["ApprovalShown"];
export type State = Approval["state"];

/** There is no watch for approvals, so they are polled. */
export const LOOK_MS = 3_000;

export const STATES: readonly { value: State | "all"; label: string }[] = [
  { value: "pending", label: "Pending" },
  { value: "approved", label: "Approved, not used" },
  { value: "used", label: "Approved and used" },
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

/** The state that a query asks for; pending by default. */
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
  return isOwn ? "Callers cannot approve their own calls. You can deny it." : null;
}

/** How the decision was made: by a person at the console or CLI (null), by the webhook, or by elicitation. */
export function decidedAs(approval: Pick<Approval, "principal" | "decided_by">): string | null {
  const by = approval.decided_by ?? "";
  if (by === "webhook" || by.startsWith("webhook:")) return "by webhook";
  return by === approval.principal ? "elicited" : null;
}
