/** "Why is X missing?": finds what X refers to, or similar names. */
import type { Decision, Item } from "./decisions";

export type Found =
  | { readonly is: "one"; readonly item: Item }
  | { readonly is: "several"; readonly items: readonly Item[]; readonly total: number }
  | {
      readonly is: "none";
      /** The named server, if it is excluded as a whole. */
      readonly server: Decision | null;
      readonly near: readonly string[];
    };

/** At most this many are listed; the rest are counted. */
const MOST = 20;
const MOST_NEAR = 5;

/** All forms of a name: as at the MCP endpoint, in patterns, in chat, or the bare name. */
function aliasesOf({ kind, server, name, label, decision }: Item): (string | null)[] {
  const written = [label, name, decision.tool, `${server}.${decision.tool}`];
  return kind === "tool"
    ? [...written, `${server}/${name}`, `mcp__${server}__${name}`, `mcp.${server}.${name}`]
    : written;
}

/** What `text` means among `items`. `servers`: the decisions about whole servers. */
export function findWhy(text: string, items: readonly Item[], servers: readonly Decision[] = []): Found {
  const asked = text.trim();
  const exact = items.filter((item) => aliasesOf(item).includes(asked));
  if (exact.length === 1) return { is: "one", item: exact[0] as Item };
  if (exact.length > 1) return several(exact);
  const lower = asked.toLowerCase();
  const partial = items.filter((item) => item.label.toLowerCase().includes(lower));
  if (partial.length > 0) return several(partial);
  const named = serverIn(asked);
  return {
    is: "none",
    server: servers.find((one) => one.server_id === named) ?? null,
    near: nearest(asked, items),
  };
}

function several(items: readonly Item[]): Found {
  return { is: "several", items: items.slice(0, MOST), total: items.length };
}

/** The server that a name begins with, if it is written like that. */
export function serverIn(text: string): string {
  const bare = text.trim().replace(/^(prompt:|resource:|mcp__|mcp\.)/, "");
  return bare.split(/[./]|__/, 1)[0] ?? "";
}

/** A resource with its server: it has a decision even if no server lists it. */
export function resourceIn(text: string): { server: string; tool: string } | null {
  const match = /^resource:([a-z0-9][a-z0-9_-]*)\/(.+)$/s.exec(text.trim());
  return match ? { server: match[1] as string, tool: `resource:${match[2]}` } : null;
}

/** The labels that `text` is most likely a typo of, the likeliest first. */
export function nearest(text: string, items: readonly Item[]): string[] {
  const asked = text.toLowerCase();
  const most = Math.max(2, Math.floor(asked.length / 3));
  const scored = items.flatMap((item) => {
    const far = Math.min(
      distance(asked, item.label.toLowerCase(), most),
      distance(asked, item.name.toLowerCase(), most),
    );
    return far <= most ? [{ label: item.label, far }] : [];
  });
  return scored
    .sort((a, b) => a.far - b.far)
    .slice(0, MOST_NEAR)
    .map((one) => one.label);
}

/** The Levenshtein distance if it is at most `most`; otherwise more than `most`. */
function distance(a: string, b: string, most: number): number {
  if (Math.abs(a.length - b.length) > most) return most + 1;
  let row = Array.from({ length: b.length + 1 }, (_, place) => place);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const swap = (row[j - 1] as number) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(swap, (row[j] as number) + 1, (next[j - 1] as number) + 1));
    }
    if (Math.min(...next) > most) return most + 1;
    row = next;
  }
  return row[b.length] as number;
}
