/** What was decided about a scope, as the lens counts and lists it. */
import type { Shapes } from "@/api/client";

export type Decision = Shapes["DecisionShown"];
export type Layer = Decision["layer"];
export type Reason = NonNullable<Decision["reason"]>;
export type Kind = "tool" | "prompt" | "resource";

/** In order of evaluation. Each layer can only narrow. */
export const LAYERS: readonly Layer[] = ["platform", "key", "caller", "task", "request"];
export const KINDS: readonly Kind[] = ["tool", "prompt", "resource"];

/** A decision about one thing, with the names it goes by. */
export interface Item {
  readonly decision: Decision;
  readonly kind: Kind;
  readonly server: string;
  /** Without its server and kind. */
  readonly name: string;
  /** With both, as it is written elsewhere. */
  readonly label: string;
}

/** Decisions about whole servers are no items: their tools are decided on one by one as well. */
export function itemsOf(decisions: readonly Decision[]): Item[] {
  return decisions.flatMap((decision) => (decision.tool === null ? [] : [itemOf(decision, decision.tool)]));
}

function itemOf(decision: Decision, tool: string): Item {
  const server = decision.server_id;
  for (const kind of ["prompt", "resource"] as const) {
    if (tool.startsWith(`${kind}:`)) {
      const name = tool.slice(kind.length + 1);
      return { decision, kind, server, name, label: `${kind}:${server}/${name}` };
    }
  }
  return { decision, kind: "tool", server, name: tool, label: `${server}.${tool}` };
}

export interface Amount {
  readonly count: number;
  readonly tokens: number;
}

/** What one layer does: what reaches it, what it takes away, and why. */
export interface Step {
  readonly layer: Layer;
  readonly enters: Amount;
  readonly takes: Amount;
  /** The most frequent first. */
  readonly reasons: readonly { readonly reason: Reason; readonly count: number }[];
}

export interface Funnel {
  readonly steps: readonly Step[];
  readonly left: Amount;
}

const NOTHING: Amount = { count: 0, tokens: 0 };

function amountOf(items: readonly Item[]): Amount {
  return items.reduce<Amount>(
    (sum, { decision }) => ({ count: sum.count + 1, tokens: sum.tokens + (decision.tokens ?? 0) }),
    NOTHING,
  );
}

function minus(a: Amount, b: Amount): Amount {
  return { count: a.count - b.count, tokens: a.tokens - b.tokens };
}

/** How `items` become fewer from layer to layer. Most callers choose nothing: their own layer shows only where it does. */
export function funnelOf(items: readonly Item[]): Funnel {
  const out = new Map<Layer, Item[]>(LAYERS.map((layer) => [layer, []]));
  for (const item of items) if (!item.decision.allowed) out.get(item.decision.layer)?.push(item);
  let left = amountOf(items);
  const shown = LAYERS.filter((layer) => layer !== "caller" || (out.get(layer)?.length ?? 0) > 0);
  const steps = shown.map((layer) => {
    const taken = out.get(layer) ?? [];
    const step = { layer, enters: left, takes: amountOf(taken), reasons: reasonsOf(taken) };
    left = minus(left, step.takes);
    return step;
  });
  return { steps, left };
}

/** The reasons why `items` are out, each with how many it keeps out; the most frequent first. */
export function reasonsOf(items: readonly Item[]): { reason: Reason; count: number }[] {
  const counts = new Map<Reason, number>();
  for (const { decision } of items) {
    if (decision.reason !== null) counts.set(decision.reason, (counts.get(decision.reason) ?? 0) + 1);
  }
  return [...counts].map(([reason, count]) => ({ reason, count })).sort((a, b) => b.count - a.count);
}

export interface Filter {
  readonly show: "all" | "in" | "out";
  readonly layer: Layer | null;
  readonly reason: Reason | null;
  /** Part of a name. */
  readonly text: string;
}

/** The items that pass `filter`. A layer selects what it excludes. */
export function filtered(items: readonly Item[], filter: Filter): Item[] {
  const text = filter.text.trim().toLowerCase();
  return items.filter(({ decision, label }) => {
    if (filter.show !== "all" && decision.allowed !== (filter.show === "in")) return false;
    if (filter.layer !== null && (decision.allowed || decision.layer !== filter.layer)) return false;
    if (filter.reason !== null && decision.reason !== filter.reason) return false;
    return text === "" || label.toLowerCase().includes(text);
  });
}

/** A line of the table: a server, or one of its things below it. */
export type Line =
  | {
      readonly is: "server";
      readonly server: string;
      readonly total: number;
      readonly allowed: number;
      readonly isOpen: boolean;
    }
  | { readonly is: "item"; readonly item: Item };

/** `items` by server, those of closed servers left out. */
export function linesOf(items: readonly Item[], closed: ReadonlySet<string>): Line[] {
  const groups = new Map<string, Item[]>();
  for (const item of items) {
    const group = groups.get(item.server);
    if (group) group.push(item);
    else groups.set(item.server, [item]);
  }
  return [...groups].flatMap(([server, group]) => {
    const isOpen = !closed.has(server);
    const allowed = group.filter((item) => item.decision.allowed).length;
    const head: Line = { is: "server", server, total: group.length, allowed, isOpen };
    return [head, ...(isOpen ? group.map((item): Line => ({ is: "item", item })) : [])];
  });
}
