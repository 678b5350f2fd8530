/** The command of a server as one would type it, to be read by people: quoted for a shell, and without secrets. */
import type { Shapes } from "@/api/client";

type Launch = Shapes["StdioBody"];

export const MASK = "***";

/** The names that usually stand for a secret; the gateway's own list, for what it has not seen yet. */
const SECRET_WORD =
  /api[-_]?key|access[-_]?key|private[-_]?key|signing[-_]?key|token|secret|passw|passphrase|pwd|auth(?!or(?!i[sz]))|cookie|credential|bearer|session|signature|(?:^|[-_.])(?:key|pat|sig|dsn)$/i;
const PLAIN_WORD = /^[\w@%+=:,./-]+$/;
const REFERENCE = /\$\{ENV:[^}]*\}/;

export function looksSecret(name: string): boolean {
  return SECRET_WORD.test(name);
}

/** `word` so that a shell takes it for one word, and literally. */
export function quote(word: string): string {
  return PLAIN_WORD.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

/** A secret's place holder; a reference is not the secret, so it is shown. */
function hide(value: string): string {
  return value === "" || REFERENCE.test(value) ? value : MASK;
}

/** A value as it may be shown next to its name. */
export function shownValue(name: string, value: string): string {
  return looksSecret(name) ? hide(value) : value;
}

function shownArgs(args: readonly string[]): string[] {
  return args.map((arg, place) => {
    const before = args[place - 1] ?? "";
    if (/^--?[A-Za-z][\w-]*$/.test(before) && looksSecret(before)) return hide(arg);
    const assigned = /^(-{0,2}[A-Za-z_][\w.-]*=)(.*)$/s.exec(arg);
    if (assigned === null) return arg;
    const [, name = "", value = ""] = assigned;
    return looksSecret(name.slice(0, -1)) ? name + hide(value) : arg;
  });
}

/** The whole launch as a shell line. The gateway itself uses no shell. */
export function shellLine(launch: Launch): string {
  const own = Object.entries(launch.env ?? {}).map(
    ([name, value]) => `${name}=${quote(shownValue(name, value))}`,
  );
  const passed = (launch.env_from ?? []).map((name) => `${name}="$${name}"`);
  const words = [...own, ...passed, quote(launch.command), ...shownArgs(launch.args ?? []).map(quote)];
  const line = words.join(" ");
  return launch.cwd ? `cd ${quote(launch.cwd)} && ${line}` : line;
}

/** The words of a command line as a shell splits it, without expansion; null: an unclosed quote. */
export function splitLine(line: string): string[] | null {
  const words: string[] = [];
  let word: string | null = null;
  for (const part of line.match(/'[^']*'|"(?:\\.|[^"\\])*"|\\.|\s+|[^\s'"\\]+|['"\\]/gs) ?? []) {
    if (/^\s+$/.test(part)) {
      if (word !== null) words.push(word);
      word = null;
    } else if (part === "'" || part === '"' || part === "\\") return null;
    else word = (word ?? "") + literal(part);
  }
  return word === null ? words : [...words, word];
}

function literal(part: string): string {
  if (part.startsWith("'")) return part.slice(1, -1);
  if (part.startsWith('"')) return part.slice(1, -1).replace(/\\(["\\$`])/g, "$1");
  return part.startsWith("\\") ? part.slice(1) : part;
}
