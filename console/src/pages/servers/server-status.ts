/** A server in words: its state with the cause, how many of its tools are offered, and what to do next. */
import type { Shapes } from "@/api/client";
import { standing } from "@/parts/standing";
import type { Server } from "./server-form";

export type Tone = "good" | "warn" | "bad" | "calm";

/** What a list is filtered by. */
export const STATE_WORDS = [
  { value: "connected", label: "connected" },
  { value: "starting", label: "starting" },
  { value: "login", label: "needs login" },
  { value: "degraded", label: "degraded" },
  { value: "down", label: "failed" },
  { value: "idle", label: "idle" },
  { value: "disabled", label: "disabled" },
  { value: "unknown", label: "unknown" },
] as const;

export type StateKey = (typeof STATE_WORDS)[number]["value"];

export interface Status {
  readonly key: StateKey;
  readonly words: string;
  readonly tone: Tone;
  /** Why, in the gateway's words; empty: there is nothing to say. */
  readonly cause: string;
  /** What to do about it. */
  readonly hint: string;
}

type Seen = Pick<Server, "enabled" | "http" | "login" | "health" | "nodes">;

function needsLogin({ http, login, health }: Seen): boolean {
  return http?.oauth?.grant === "authorization_code" && login === null && health?.state !== "connected";
}

/** What a start waits for, in brackets. */
function startingWords(hint: string): string {
  const awaited = /(downloading packages|pulling the image)/.exec(hint);
  return awaited ? `starting (${awaited[1]})` : "starting";
}

const CALM = { cause: "", hint: "" };

export function statusOf(server: Seen): Status {
  const { state, lastError, hint } = standing(server);
  if (state === "disabled" || server.enabled === false)
    return { key: "disabled", words: "disabled", tone: "calm", ...CALM };
  if (needsLogin(server))
    return {
      key: "login",
      words: "needs login",
      tone: "warn",
      cause: "No one has logged in to its authorization server.",
      hint: "",
    };
  switch (state) {
    case "connected":
      return { key: "connected", words: "connected", tone: "good", ...CALM };
    case "starting":
      return { key: "starting", words: startingWords(hint), tone: "warn", cause: hint, hint: "" };
    case "degraded":
      return { key: "degraded", words: "degraded", tone: "warn", cause: lastError, hint };
    case "down":
      return { key: "down", words: "failed", tone: "bad", cause: lastError, hint };
    case "idle":
      return { key: "idle", words: "idle", tone: "calm", cause: "", hint: "Connects on the first call." };
    default:
      return { key: "unknown", words: "unknown", tone: "calm", ...CALM };
  }
}

/** A text of the gateway as a sentence. */
export function sentence(text: string): string {
  return text.slice(0, 1).toUpperCase() + text.slice(1);
}

export type OfferCount = Shapes["OfferCount"];

export interface OfferWords {
  readonly offered: number;
  readonly listed: number;
  readonly isNone: boolean;
  /** Why nothing, or not everything, is offered. */
  readonly why: string;
  /** Where to change that; empty: not here. */
  readonly to: string;
  readonly action: string;
}

const WHY: Readonly<Partial<Record<NonNullable<OfferCount["reason"]>, string>>> = {
  deny_all: "no tool is allowed",
  not_in_server_allowlist: "no allowed pattern matches",
  server_disabled: "the server is disabled",
  quarantined: "its tools changed since approval",
  invalid_definition: "its definitions are invalid",
  env_missing: "a variable is missing",
  list_timeout: "its tools were not listed in time",
  list_failed: "its tools could not be listed",
};

/** Null: nothing is known of its tools. */
export function offerOf(server: Pick<Server, "server_id" | "offer" | "allowed_tools">): OfferWords | null {
  const { server_id, offer } = server;
  if (offer === null || (offer.listed === 0 && offer.reason !== "deny_all")) return null;
  const { offered, listed, reason } = offer;
  const isNone = offered === 0;
  const why = isNone && reason !== null ? (WHY[reason] ?? "") : "";
  const isPinned = reason === "quarantined";
  const isChoice = reason === "deny_all" || reason === "not_in_server_allowlist";
  const to = isPinned ? `/pins/${server_id}` : isChoice && listed > 0 ? `/servers/${server_id}/tools` : "";
  const act = isPinned ? "Review the changes" : to === "" ? "" : "Choose tools";
  return { offered, listed, isNone, why, to, action: act };
}

export interface NextStep {
  readonly label: string;
  /** A page; empty: the server is tested in place. */
  readonly to: string;
}

/** What one would do next with a server. */
export function nextStepOf(server: Server): NextStep {
  const page = `/servers/${server.server_id}`;
  const { key } = statusOf(server);
  if (key === "login") return { label: "Log in", to: page };
  const hasOutput = Boolean(server.health?.stderr_tail);
  if ((key === "down" || key === "degraded") && hasOutput)
    return { label: "Open output", to: `${page}#output` };
  if (key === "disabled") return { label: "Enable", to: `${page}/edit` };
  const offer = offerOf(server);
  if (offer?.isNone && offer.to !== "") return { label: offer.action, to: offer.to };
  return { label: "Test", to: "" };
}
