/** Tools that were picked, with what each costs a model. */

/** Full name to tokens, in the order of picking. */
export type Picks = ReadonlyMap<string, number>;

/** A skill has no more. */
export const MOST_PICKS = 1_000;
export const NONE: Picks = new Map();

/** What was kept; what is not understood is left out. */
export function parsePicks(text: string | null): Picks {
  try {
    const kept: unknown = JSON.parse(text ?? "[]");
    if (!Array.isArray(kept)) return NONE;
    return new Map(kept.filter(isPick).slice(0, MOST_PICKS));
  } catch {
    return NONE;
  }
}

function isPick(value: unknown): value is [string, number] {
  return Array.isArray(value) && typeof value[0] === "string" && typeof value[1] === "number";
}

/** `picks` with these tools as well. No more than a skill can have. */
export function withPicked(picks: Picks, tools: Iterable<readonly [string, number]>): Picks {
  return new Map([...picks, ...tools].slice(0, MOST_PICKS));
}

export function withoutPicked(picks: Picks, names: Iterable<string>): Picks {
  const gone = new Set(names);
  return new Map([...picks].filter(([name]) => !gone.has(name)));
}

export function tokensOf(picks: Picks): number {
  return [...picks.values()].reduce((sum, one) => sum + one, 0);
}

/** The names in an address, each once. */
export function namesIn(text: string | null): string[] {
  const names = (text ?? "").split(",").filter((one) => one !== "");
  return [...new Set(names)].slice(0, MOST_PICKS);
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
