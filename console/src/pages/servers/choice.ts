/** Which tools of a server are offered, as ticks; and the patterns of its record that say so. */

export interface Choosable {
  readonly name: string;
  readonly description: string;
  readonly tokens: number;
  /** What its annotations state, as in patterns. */
  readonly effects: readonly string[];
}

export const isReadOnly = (tool: Choosable) => tool.effects.includes("read_only");
export const isDestructive = (tool: Choosable) => tool.effects.includes("destructive");

function rank(tool: Choosable): number {
  return isReadOnly(tool) ? 0 : isDestructive(tool) ? 2 : 1;
}

/** Read-only tools first, destructive ones last. */
export function byRisk<T extends Choosable>(tools: readonly T[]): T[] {
  return [...tools].sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
}

/** What is ticked at first: what states that it changes nothing. */
export function usualTicks(tools: readonly Choosable[]): ReadonlySet<string> {
  return new Set(tools.filter(isReadOnly).map((one) => one.name));
}

/** The pattern of one tool of a server, also if its name looks like another kind of pattern. */
export function patternOf(name: string): string {
  if (name.startsWith("@")) return `?${name.slice(1)}`;
  return name.includes("/") || /^(?:prompt|resource):/.test(name) ? `*/${name}` : name;
}

function glob(pattern: string): RegExp {
  const parts = [...pattern].map((one) =>
    one === "*" ? ".*" : one === "?" ? "." : one.replace(/[\\^$.|+()[\]{}]/, "\\$&"),
  );
  return new RegExp(`^${parts.join("")}$`, "s");
}

function isMatch(pattern: string, serverId: string, tool: Choosable): boolean {
  if (/^(?:prompt|resource):/.test(pattern)) return false;
  const cut = pattern.indexOf("/");
  if (cut >= 0 && !glob(pattern.slice(0, cut)).test(serverId)) return false;
  const name = pattern.slice(cut + 1);
  return name.startsWith("@") ? tool.effects.includes(name.slice(1)) : glob(name).test(tool.name);
}

/** `allowed_tools` for exactly these ticks. Patterns stay unless they allow a tool that is not ticked. */
export function allowedFor(
  ticked: ReadonlySet<string>,
  tools: readonly Choosable[],
  { serverId, patterns = [] }: { readonly serverId: string; readonly patterns?: readonly string[] },
): string[] {
  const kept = patterns.filter((one) =>
    tools.every((tool) => ticked.has(tool.name) || !isMatch(one, serverId, tool)),
  );
  const added = tools.filter(
    (tool) => ticked.has(tool.name) && !kept.some((one) => isMatch(one, serverId, tool)),
  );
  return [...kept, ...added.map((one) => patternOf(one.name))];
}

/** The ticks that `patterns` are. */
export function ticksOf(
  patterns: readonly string[],
  serverId: string,
  tools: readonly Choosable[],
): ReadonlySet<string> {
  const matching = tools.filter((tool) => patterns.some((one) => isMatch(one, serverId, tool)));
  return new Set(matching.map((one) => one.name));
}
