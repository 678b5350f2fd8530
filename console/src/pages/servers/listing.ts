/** The rows of the server list, and which of them match a filter. */
import type { Shapes } from "@/api/client";
import { standing } from "@/parts/standing";
import type { Server } from "./server-form";
import { type OfferWords, offerOf, type Status, statusOf } from "./server-status";

export interface Filter {
  readonly text: string;
  readonly state: string;
  readonly transport: string;
  readonly tag: string;
  /** "none": servers with tools of which none is offered. */
  readonly offered: string;
}

export interface Row {
  readonly server: Server;
  readonly status: Status;
  /** Null: nothing is known of its tools. */
  readonly offer: OfferWords | null;
  readonly tools: number;
  /** Of the last day; null: not known. */
  readonly calls: number | null;
  readonly errors: number | null;
  readonly p95: number | null;
}

export function toRows(
  servers: readonly Server[],
  activity: readonly Shapes["ServerActivity"][] | undefined,
): Row[] {
  const known = new Map(activity?.map((one) => [one.server_id, one]));
  return servers.map((server) => {
    const counted = known.get(server.server_id);
    return {
      server,
      status: statusOf(server),
      offer: offerOf(server),
      tools: standing(server).tools,
      calls: activity === undefined ? null : (counted?.calls ?? 0),
      errors: activity === undefined ? null : (counted?.errors ?? 0),
      p95: counted?.p95_ms ?? null,
    };
  });
}

/** The rows that match. Text is searched in the fields that a row shows. */
export function filterRows(rows: readonly Row[], filter: Filter): Row[] {
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(({ server, status, offer }) => {
    if (filter.state !== "" && status.key !== filter.state) return false;
    if (filter.transport !== "" && server.transport !== filter.transport) return false;
    if (filter.offered === "none" && !offer?.isNone) return false;
    const tags = server.tags ?? [];
    if (filter.tag !== "" && !tags.includes(filter.tag)) return false;
    const said = [server.server_id, server.display_name, server.category, ...tags, status.words, status.cause]
      .join("\n")
      .toLowerCase();
    return words.every((word) => said.includes(word));
  });
}

/** All tags, by name. */
export function tagsOf(servers: readonly Server[]): string[] {
  return [...new Set(servers.flatMap((one) => one.tags ?? []))].sort((a, b) => a.localeCompare(b));
}

export function readFilter(query: URLSearchParams): Filter {
  const of = (name: string) => query.get(name) ?? "";
  return {
    text: of("q"),
    state: of("state"),
    transport: of("transport"),
    tag: of("tag"),
    offered: of("offered"),
  };
}
