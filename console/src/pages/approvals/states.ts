/** The states of approvals: words, colours, and the filters. */
import type { Shapes } from "@/api/client";
import { hasWords } from "@/parts/filter-words";

export type Approval = Shapes["ApprovalShown"];
export type State = Approval["state"];

/** There is no watch for approvals, so they are polled. */
export const LOOK_MS = 3_000;

/** Pending ones are shown unless another state is asked for. */
export const STATES: readonly { value: State | "all"; label: string }[] = [
  { value: "pending", label: "Pending" },
  { value: "approved", label: "Approved, not used" },
  { value: "used", label: "Approved and used" },
  { value: "denied", label: "Denied" },
  { value: "expired", label: "Expired" },
  { value: "all", label: "All states" },
];

export const COLOURS: Readonly<Record<State, string>> = {
  pending: "yellow",
  approved: "green",
  used: "teal",
  denied: "red",
  expired: "gray",
};

/** The state that a query asks for; pending by default. */
export function askedState(text: string): State | "all" {
  return STATES.find((one) => one.value === text)?.value ?? "pending";
}

export interface Filter {
  readonly text: string;
  readonly by: string;
  readonly server: string;
}

/** The approvals that match. Text is looked for in the tool, the arguments and the reason. */
export function filtered(approvals: readonly Approval[], { text, by, server }: Filter): Approval[] {
  return approvals.filter(
    (one) =>
      (by === "" || one.principal === by) &&
      (server === "" || one.server_id === server) &&
      hasWords(text, nameOf(one), one.task_id ?? "", one.reason ?? "", JSON.stringify(one.arguments)),
  );
}

export function nameOf({ server_id, tool }: Pick<Approval, "server_id" | "tool">): string {
  return `${server_id}.${tool}`;
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

/** The decision as one says it; who made it follows. */
export function decisionWords(state: State): string {
  return state === "denied" ? "Denied" : "Approved";
}
