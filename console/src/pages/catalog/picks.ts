/** Tools and whole packages that were picked, with what each costs a model. */
import { serverOf } from "./paths";

/** What is known of a pick: about how many tokens, and how many tools a whole package has. */
export interface Pick {
  readonly tokens: number;
  readonly tools: number;
}

/** By full name, in the order of picking. A whole package is `id.*`. */
export type Picks = ReadonlyMap<string, Pick>;
type Named = readonly [name: string, pick: Pick];

/** A skill has no more. */
export const MOST_PICKS = 1_000;
export const NONE: Picks = new Map();
/** What a pick is worth of which nothing is known yet. */
const UNPRICED: Pick = { tokens: 0, tools: 1 };
const WHOLE = ".*";

/** The pick of a whole package. */
export const wholeOf = (id: string) => `${id}${WHOLE}`;
export const isWhole = (name: string) => name.endsWith(WHOLE);

/** What was kept; what is not understood is left out. */
export function parsePicks(text: string | null): Picks {
  try {
    const kept: unknown = JSON.parse(text ?? "[]");
    if (!Array.isArray(kept)) return NONE;
    return new Map(kept.flatMap(pickOf).slice(0, MOST_PICKS));
  } catch {
    return NONE;
  }
}

export function encodePicks(picks: Picks): string {
  return JSON.stringify([...picks].map(([name, { tokens, tools }]) => [name, tokens, tools]));
}

function pickOf(value: unknown): Named[] {
  if (!Array.isArray(value)) return [];
  const [name, tokens, tools = 1] = value;
  if (typeof name !== "string" || typeof tokens !== "number" || typeof tools !== "number") return [];
  return [[name, { tokens, tools }]];
}

/** `picks` with these tools as well. No more than a skill can have. */
export function withPicked(picks: Picks, tools: Iterable<Named>): Picks {
  return new Map([...picks, ...tools].slice(0, MOST_PICKS));
}

export function withoutPicked(picks: Picks, names: Iterable<string>): Picks {
  const gone = new Set(names);
  return new Map([...picks].filter(([name]) => !gone.has(name)));
}

/** `picks` with a whole package, in place of single tools of it. */
export function withPackage(picks: Picks, id: string, pick: Pick): Picks {
  return withPicked(withoutPackage(picks, id), [[wholeOf(id), pick]]);
}

export function withoutPackage(picks: Picks, id: string): Picks {
  return new Map([...picks].filter(([name]) => serverOf(name) !== id));
}

/** A package that was picked whole as its single tools but for one. */
export function withoutOneOf(picks: Picks, id: string, gone: string, tools: Iterable<Named>): Picks {
  const others = [...tools].filter(([name]) => name !== gone && name !== wholeOf(id));
  return withPicked(withoutPackage(picks, id), others);
}

/** How much of a package is picked. */
export function pickedOf(picks: Picks, id: string): "whole" | "some" | "none" {
  if (picks.has(wholeOf(id))) return "whole";
  for (const name of picks.keys()) if (serverOf(name) === id) return "some";
  return "none";
}

/** Whether a tool is picked, alone or with its package. */
export function isPicked(picks: Picks, fullName: string): boolean {
  return picks.has(fullName) || picks.has(wholeOf(serverOf(fullName)));
}

export function tokensOf(picks: Picks): number {
  return [...picks.values()].reduce((sum, one) => sum + one.tokens, 0);
}

export function toolsOf(picks: Picks): number {
  return [...picks.values()].reduce((sum, one) => sum + one.tools, 0);
}

/** The packages that are picked whole, and the single tools. */
export function partsOf(picks: Picks): { packages: string[]; tools: string[] } {
  const names = [...picks.keys()];
  return {
    packages: names.filter(isWhole).map(serverOf),
    tools: names.filter((one) => !isWhole(one)),
  };
}

/** The query of a URL with these picks; empty if it would be too long. */
export function addressOf(picks: Picks): { servers: string; tools: string } {
  const { packages, tools } = partsOf(picks);
  const address = { servers: packages.join(","), tools: tools.join(",") };
  return address.servers.length + address.tools.length > MOST_URL_CHARS
    ? { servers: "", tools: "" }
    : address;
}

/** What an address names. */
export function picksIn(servers: string | null, tools: string | null): Picks {
  const packages = namesIn(servers).map(wholeOf);
  const single = namesIn(tools).filter((one) => !packages.includes(wholeOf(serverOf(one))));
  return withPicked(
    NONE,
    [...packages, ...single].map((one) => [one, UNPRICED] as const),
  );
}

/** The names in an address, each once. */
export function namesIn(text: string | null): string[] {
  const names = (text ?? "").split(",").filter((one) => one !== "");
  return [...new Set(names)].slice(0, MOST_PICKS);
}

/** `picks` at the prices that the gateway says; the same where nothing differs. */
export function withPrices(picks: Picks, prices: ReadonlyMap<string, number>): Picks {
  const packages = new Map<string, Pick>();
  for (const [name, tokens] of prices) {
    const whole = wholeOf(serverOf(name));
    if (!picks.has(whole)) continue;
    const { tokens: before, tools } = packages.get(whole) ?? { tokens: 0, tools: 0 };
    packages.set(whole, { tokens: before + tokens, tools: tools + 1 });
  }
  const priced = [...picks].map(([name, old]): Named => {
    const tokens = prices.get(name);
    return [name, packages.get(name) ?? (tokens === undefined ? old : { ...old, tokens })];
  });
  const isSame = priced.every(([name, { tokens, tools }]) => {
    const old = picks.get(name);
    return old?.tokens === tokens && old.tools === tools;
  });
  return isSame ? picks : new Map(priced);
}

/** Every tool by name, those of whole packages as they are now: seen ones, and what was picked singly. */
export function frozenNames(picks: Picks, prices: ReadonlyMap<string, number>): string[] {
  return [...picks.keys()].flatMap((name) =>
    isWhole(name) ? [...prices.keys()].filter((one) => wholeOf(serverOf(one)) === name).sort() : [name],
  );
}

/** What a task selects that has exactly these picks: whole packages with the tools that they get later, too. */
export function policyOf(picks: Picks): { servers: string[]; allow: string[] | null } {
  const { tools } = partsOf(picks);
  const servers = [...new Set([...picks.keys()].map(serverOf))].sort();
  // `server.tool` is `server/tool` in a pattern; no server id has a dot.
  const patterns = [...picks.keys()].map((name) => name.replace(".", "/")).sort();
  return { servers, allow: tools.length === 0 ? null : patterns };
}

/** What a URL asks for that follows its packages: servers where only whole ones are picked, else patterns. */
export function followingQuery(picks: Picks): { servers: string } | { tools: string } {
  const { packages, tools } = partsOf(picks);
  if (tools.length === 0) return { servers: packages.join(",") };
  return { tools: [...picks.keys()].join(",") };
}

/** A query takes no more than 16 KiB; long ones are asked in parts of this many characters. */
const PART_CHARS = 8_000;

/** The names as lists for queries, at least one. */
export function inParts(names: readonly string[]): string[] {
  const parts = [""];
  for (const name of names) {
    const last = parts.at(-1) ?? "";
    if (last === "") parts[parts.length - 1] = name;
    else if (last.length + name.length < PART_CHARS) parts[parts.length - 1] = `${last},${name}`;
    else parts.push(name);
  }
  return parts;
}

/** Longer lists are not for a URL: not every client takes one. */
export const MOST_URL_CHARS = 4_000;

/** How much less, in whole percent; null where there is nothing to compare with. */
export function savedOf(tokens: number, all: number): number | null {
  return all > 0 && tokens <= all ? Math.floor((1 - tokens / all) * 100) : null;
}
