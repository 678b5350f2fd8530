/** The lens's selection and filters. All of it is in the URL, so that a view can be shared. */

import { REASON_WORDS } from "@/parts/reasons";
import { type Filter, KINDS, type Kind, LAYERS, type Layer, type Reason } from "./decisions";

/** The selection. Null: not given. An empty list selects nothing, which is different. */
export interface Selection {
  readonly task: string | null;
  readonly key: string | null;
  readonly servers: readonly string[] | null;
  readonly tools: readonly string[] | null;
  readonly profile: string | null;
  readonly mode: "list" | "find" | null;
}

export interface View {
  readonly selection: Selection;
  readonly kind: Kind;
  readonly why: string;
  readonly filter: Filter;
}

function oneOf<T extends string>(text: string | null, known: readonly T[]): T | null {
  return known.find((one) => one === text) ?? null;
}

function listOf(text: string | null): string[] | null {
  return text === null
    ? null
    : text
        .split(",")
        .map((one) => one.trim())
        .filter((one) => one !== "");
}

/** The view that an address asks for. What is not understood is left out. */
export function parseView(params: URLSearchParams): View {
  return {
    selection: {
      task: params.get("task") || null,
      key: params.get("key") || null,
      servers: listOf(params.get("servers")),
      tools: listOf(params.get("tools")),
      profile: params.get("profile") || null,
      mode: oneOf(params.get("mode"), ["list", "find"] as const),
    },
    kind: oneOf(params.get("kind"), KINDS) ?? "tool",
    why: params.get("why") ?? "",
    filter: {
      show: oneOf(params.get("show"), ["in", "out"] as const) ?? "all",
      layer: oneOf<Layer>(params.get("layer"), LAYERS),
      reason: oneOf(params.get("reason"), Object.keys(REASON_WORDS) as Reason[]),
      text: params.get("q") ?? "",
    },
  };
}

/** The address of a view, without what is as usual. */
export function viewParams({ selection, kind, why, filter }: View): URLSearchParams {
  const params = new URLSearchParams(queryOf(selection));
  if (kind !== "tool") params.set("kind", kind);
  if (why !== "") params.set("why", why);
  if (filter.show !== "all") params.set("show", filter.show);
  if (filter.layer !== null) params.set("layer", filter.layer);
  if (filter.reason !== null) params.set("reason", filter.reason);
  if (filter.text !== "") params.set("q", filter.text);
  return params;
}

/** The selection as the query of an endpoint. */
export function queryOf(selection: Selection): Record<string, string> {
  const { task, key, servers, tools, profile, mode } = selection;
  const all = { task, key, servers: servers?.join(","), tools: tools?.join(","), profile, mode };
  return Object.fromEntries(
    Object.entries(all).filter((one): one is [string, string] => typeof one[1] === "string"),
  );
}
