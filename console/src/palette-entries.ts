/** What the palette finds, and in which order. */
import { type Role, reaches } from "./api/role";
import { PLACES } from "./nav";

export interface Entry {
  readonly kind: string;
  readonly title: string;
  readonly about: string;
  readonly path: string;
}

interface Action extends Entry {
  readonly role: Role;
}

const ACTIONS: readonly Action[] = [
  ["Add a server", "from a command, a URL or a configuration", "/servers/-/new", "admin"],
  ["Import servers", "of Claude, Cursor, VS Code or another gateway", "/servers/-/import", "admin"],
  ["New task", "with only the tools it needs", "/tasks/-/new", "publisher"],
  ["New profile", "a selection that callers choose", "/profiles/-/new", "publisher"],
  ["Hand over access", "a key, a task and the client's settings", "/keys/-/hand-over", "admin"],
  ["New key", "for a client on another machine", "/keys/-/new", "admin"],
  ["Call a tool", "with a form of its schema", "/playground", "agent"],
  ["Chat with a task", "and see each tool call", "/playground/chat", "agent"],
  ["Connect a client", "the settings to paste", "/connections", "agent"],
  ["Pending approvals", "approve or deny calls", "/approvals", "viewer"],
  ["Why is a tool missing?", "ask the scope lens", "/scope", "agent"],
].map(([title = "", about = "", path = "", role]) => ({
  kind: "Action",
  title,
  about,
  path,
  role: role as Role,
}));

export function pages(role: Role): Entry[] {
  return PLACES.filter((one) => reaches(role, one.role)).map(({ title, path }) => ({
    kind: "Page",
    title,
    about: "",
    path,
  }));
}

export function actions(role: Role): Entry[] {
  return ACTIONS.filter((one) => reaches(role, one.role));
}

export function recordEntries(
  kind: string,
  path: string,
  records: readonly (readonly [id: string, name: string])[] | undefined,
): Entry[] {
  return (records ?? []).map(([id, name]) => ({
    kind,
    title: id,
    about: name === id ? "" : name,
    path: `${path}/${encodeURIComponent(id)}`,
  }));
}

/** How well `entry` matches all of `words`: less is better, and undefined is not at all. */
function rank(entry: Entry, words: readonly string[]): number | undefined {
  const title = entry.title.toLowerCase();
  const all = `${entry.kind} ${title} ${entry.about}`.toLowerCase();
  if (!words.every((word) => all.includes(word))) return undefined;
  const [first = ""] = words;
  if (title.startsWith(first)) return 0;
  return title.includes(first) ? 1 : 2;
}

/** The entries that match, the best first. What was typed can always be searched for in the catalog, and explained. */
export function matching(entries: readonly Entry[], text: string, isAgent = false): Entry[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return entries.filter((one) => one.kind === "Action" || one.kind === "Page");
  const found = entries
    .map((entry) => ({ entry, rank: rank(entry, words) }))
    .filter((one): one is { entry: Entry; rank: number } => one.rank !== undefined)
    .sort((a, b) => a.rank - b.rank)
    .map((one) => one.entry);
  const asked = encodeURIComponent(text.trim());
  const search = {
    kind: "Search",
    title: `Tools like “${text.trim()}”`,
    about: "in the catalog",
    path: `/catalog?q=${asked}`,
  };
  const why = {
    kind: "Why",
    title: `Why is “${text.trim()}” missing?`,
    about: "in the scope lens",
    path: `/scope?why=${asked}`,
  };
  const audit = {
    kind: "Search",
    title: `Calls of “${text.trim()}”`,
    about: "in the audit log",
    path: `/activity?tool=${asked}`,
  };
  return [...found, search, why, ...(isAgent ? [] : [audit])];
}
