/** The event filter. All of it is in the URL, so that it can be shared. */

export const TYPES = [
  "call",
  "admin",
  "approval",
  "credential",
  "definition",
  "invocation",
  "spawn",
  "scope",
  "session",
] as const;
export const OUTCOMES = [
  "ok",
  "failed",
  "rejected",
  "pending",
  "tool_error",
  "error",
  "denied",
  "cancelled",
  "unknown",
  "admitted",
] as const;

/** The outcomes in words, as the filter shows them. */
export const OUTCOME_WORDS: Readonly<Record<(typeof OUTCOMES)[number], string>> = {
  ok: "Succeeded",
  failed: "Failed (gateway or tool)",
  rejected: "Denied",
  pending: "Pending approval",
  tool_error: "Tool error",
  error: "Error of gateway or server",
  denied: "Denied or pending",
  cancelled: "Cancelled",
  unknown: "Result unknown",
  admitted: "Sent to a server",
};

/** The types in words. */
export const TYPE_WORDS: Readonly<Record<(typeof TYPES)[number], string>> = {
  call: "Calls",
  admin: "Changes",
  approval: "Approvals",
  credential: "Rejected credentials",
  definition: "Changed definitions",
  invocation: "Runs",
  spawn: "Processes",
  scope: "Offered scopes",
  session: "Ended sessions",
};

/** The filter fields, by parameter name. */
export const TEXTS = [
  ["principal", "Caller"],
  ["task", "Task"],
  ["server", "Server"],
  ["tool", "Tool (without server)"],
  ["code", "Error code"],
  ["door", "Endpoint"],
  ["session", "Session or run"],
  ["request", "Request ID"],
  ["node", "Node"],
  ["profile", "Profile version"],
] as const;

export type TextName = (typeof TEXTS)[number][0];
type Name = TextName | "type" | "outcome";

const NAMES: readonly Name[] = ["type", "outcome", ...TEXTS.map(([name]) => name)];

export interface Asked extends Readonly<Partial<Record<TextName, string>>> {
  readonly type?: (typeof TYPES)[number];
  readonly outcome?: (typeof OUTCOMES)[number];
  readonly since?: number;
  readonly until?: number;
}

function time(text: string | null): number | undefined {
  const value = Number(text);
  return text !== null && Number.isSafeInteger(value) && value >= 0 ? value : undefined;
}

/** The filter in a URL; unknown values are omitted. */
export function readAsked(params: URLSearchParams): Asked {
  const texts = TEXTS.map(([name]) => [name, params.get(name)] as const).filter(([, value]) => value);
  return {
    ...Object.fromEntries(texts),
    type: TYPES.find((one) => one === params.get("type")),
    outcome: OUTCOMES.find((one) => one === params.get("outcome")),
    since: time(params.get("since")),
    until: time(params.get("until")),
  };
}

/** The same as a query of the API, and of an address. */
export function writeAsked(asked: Asked): URLSearchParams {
  const params = new URLSearchParams();
  for (const name of [...NAMES, "since", "until"] as const) {
    const value = asked[name];
    if (value !== undefined && value !== "") params.set(name, String(value));
  }
  return params;
}

/** A moment as an input for date and time has it, in local time; and back. */
export function toLocal(ms: number | undefined): string {
  if (ms === undefined) return "";
  const shifted = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
  return shifted.toISOString().slice(0, 16);
}

export function fromLocal(text: string): number | undefined {
  const ms = new Date(text).getTime();
  return Number.isNaN(ms) ? undefined : ms;
}
