/** The list of servers as it is looked at: what each row says, and which rows a filter leaves. */
import type { Shapes } from "@/api/client";
import { type HealthState, NOT_KNOWN, standing } from "@/parts/server-state";
import type { Server } from "./server-form";

export interface Filter {
  readonly text: string;
  readonly state: string;
  readonly transport: string;
  readonly tag: string;
}

export interface Row {
  readonly server: Server;
  readonly state: HealthState | undefined;
  readonly lastError: string;
  readonly tools: number;
  /** Of the last day; null: not known. */
  readonly calls: number | null;
  readonly errors: number | null;
  readonly p95: number | null;
}

/** An error that is over is no news in a list. */
function isWrong(state: HealthState | undefined): boolean {
  return state === "degraded" || state === "down";
}

export function toRows(
  servers: readonly Server[],
  activity: readonly Shapes["ServerActivity"][] | undefined,
): Row[] {
  const known = new Map(activity?.map((one) => [one.server_id, one]));
  return servers.map((server) => {
    const { state, lastError, tools } = standing(server);
    const counted = known.get(server.server_id);
    return {
      server,
      state,
      lastError: isWrong(state) ? lastError : "",
      tools,
      calls: activity === undefined ? null : (counted?.calls ?? 0),
      errors: activity === undefined ? null : (counted?.errors ?? 0),
      p95: counted?.p95_ms ?? null,
    };
  });
}

/** The rows that pass; text is looked for in what a row shows of the record. */
export function filterRows(rows: readonly Row[], filter: Filter): Row[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(({ server, state, lastError }) => {
    if (filter.state !== "" && (state ?? NOT_KNOWN) !== filter.state) return false;
    if (filter.transport !== "" && server.transport !== filter.transport) return false;
    const tags = server.tags ?? [];
    if (filter.tag !== "" && !tags.includes(filter.tag)) return false;
    const said = [server.server_id, server.display_name, server.category, ...tags, lastError]
      .join("\n")
      .toLowerCase();
    return words.every((word) => said.includes(word));
  });
}

/** Every tag there is, by name. */
export function tagsOf(servers: readonly Server[]): string[] {
  return [...new Set(servers.flatMap((one) => one.tags ?? []))].sort((a, b) => a.localeCompare(b));
}

export function readFilter(query: URLSearchParams): Filter {
  const of = (name: string) => query.get(name) ?? "";
  return { text: of("q"), state: of("state"), transport: of("transport"), tag: of("tag") };
}
