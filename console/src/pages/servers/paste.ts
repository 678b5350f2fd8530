/** What was pasted into the one field of a new server: a command, a URL, or a file that the gateway reads. */
import { idOfCommand, idOfUrl } from "./proposed-id";
import type { Body } from "./server-form";
import { splitLine } from "./shell-line";

export type Pasted =
  | { readonly kind: "nothing" }
  | { readonly kind: "command" | "url"; readonly body: Body; readonly name: string }
  /** A document of another program, as text. */
  | { readonly kind: "file"; readonly text: string }
  | { readonly kind: "unclear"; readonly problem: string };

const URL_ALONE = /^https?:\/\/\S+$/i;
const ASSIGNED = /^([A-Za-z_][A-Za-z0-9_]*)=(.*)$/s;
/** The first line of TOML or YAML. */
const TABLE = /^(?:\[{1,2}[\w."-]+\]{1,2}|[\w-]+:)\s*$/m;
/** What a README leaves to the reader is one word, spaces or not. */
const HOLE = /<[^<>\n]*>/g;
const NO_BREAK = "\u{e000}";
const SHELL_VARIABLE = /\$(?:\{([A-Za-z_]\w*)\}|([A-Z_][A-Z0-9_]*))/g;
/** Clients whose command line adds a server. */
const CLIENTS = new Set(["claude", "codex", "gemini", "qwen"]);

export function recognise(text: string): Pasted {
  const trimmed = text.trim();
  if (trimmed === "") return { kind: "nothing" };
  if (URL_ALONE.test(trimmed)) return { kind: "url", body: toEndpoint(trimmed), name: "" };
  const file = toFile(trimmed);
  if (file !== null) return { kind: "file", text: file };
  const line = trimmed.replace(/\\\r?\n/g, " ");
  if (/[\r\n]/.test(line))
    return { kind: "unclear", problem: "These lines are neither one command nor a configuration." };
  const words = splitLine(line.replace(HOLE, (hole) => hole.replaceAll(" ", NO_BREAK)))?.map((one) =>
    one.replaceAll(NO_BREAK, " "),
  );
  if (words === undefined) return { kind: "unclear", problem: "A quote is not closed." };
  return ofWords(words[0] === "$" || words[0] === ">" ? words.slice(1) : words);
}

/** The document in `text`; null: not a document. What a README shows without its frame gets it. */
function toFile(text: string): string | null {
  if (/^[{[]/.test(text)) return framed(parsed(text)) ?? text;
  if (/^"[^"]+"\s*:/.test(text)) {
    const inner = framed(parsed(`{${text.replace(/,\s*$/, "")}}`));
    return inner ?? `{${text}}`;
  }
  return text.includes("\n") && TABLE.test(text) ? text : null;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function isTable(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isDefinition(value: unknown): boolean {
  return isTable(value) && (typeof value.command === "string" || typeof value.url === "string");
}

/** One definition, or several by name, as a file has them; null: it is something else. */
function framed(value: unknown): string | null {
  if (!isTable(value) || "server_id" in value || "mcpServers" in value) return null;
  if (isDefinition(value)) return JSON.stringify({ mcpServers: { [nameOf(value)]: value } });
  const parts = Object.values(value);
  return parts.length > 0 && parts.every(isDefinition) ? JSON.stringify({ mcpServers: value }) : null;
}

function nameOf(definition: Readonly<Record<string, unknown>>): string {
  const { name, command, args, url } = definition;
  if (typeof name === "string" && name !== "") return name;
  if (typeof url === "string") return idOfUrl(url);
  return idOfCommand([String(command), ...(Array.isArray(args) ? args.map(String) : [])]);
}

function toEndpoint(url: string, headers: Record<string, string> = {}): Body {
  const isLegacy = /\/sse\/?(?:[?#]|$)/.test(url);
  return { transport: isLegacy ? "http_sse_legacy" : "streamable_http", http: { url, headers } };
}

/** A shell would expand variables: they become references to those of the gateway. */
function referring(text: string): string {
  return text.replace(SHELL_VARIABLE, (_, long: string | undefined, short: string | undefined) =>
    reference(long ?? short ?? ""),
  );
}

export function reference(variable: string): string {
  return `$${`{ENV:${variable}}`}`;
}

/** The variables in front of a command, and what follows them. */
function splitVariables(words: readonly string[]): [Record<string, string>, string[]] {
  const begin = words[0] === "env" && ASSIGNED.test(words[1] ?? "") ? 1 : 0;
  const end = words.findIndex((one, at) => at >= begin && !ASSIGNED.test(one));
  const stop = end < 0 ? words.length : end;
  return [Object.fromEntries(words.slice(begin, stop).flatMap(assignment)), words.slice(stop)];
}

function assignment(word: string): [string, string][] {
  const found = ASSIGNED.exec(word);
  return found === null ? [] : [[found[1] ?? "", referring(found[2] ?? "")]];
}

function ofWords(words: readonly string[], added: Readonly<Record<string, string>> = {}): Pasted {
  const [own, [command, ...args]] = splitVariables(words);
  const env = { ...added, ...own };
  if (command === undefined) return { kind: "unclear", problem: "Variables without a command." };
  if (CLIENTS.has(command) && args[0] === "mcp" && args[1] === "add") return ofClient(args.slice(2), env);
  if (URL_ALONE.test(command) && args.length === 0)
    return { kind: "url", body: toEndpoint(command), name: "" };
  const stdio = { command, args: args.map(referring), env, env_from: [] };
  return { kind: "command", body: { transport: "stdio", stdio }, name: "" };
}

/** What follows an option like `--env`, wherever it is. */
function valuesOf(words: readonly string[], option: RegExp): string[] {
  return words.filter((_, at) => option.test(words[at - 1] ?? ""));
}

function headerIn(word: string): [string, string][] {
  const found = /^([^:=]+)[:=]\s*(.*)$/s.exec(word);
  return found === null ? [] : [[found[1] ?? "", referring(found[2] ?? "")]];
}

/** The rest of `claude mcp add`, as the documentation of many servers has it. */
function ofClient(words: readonly string[], added: Readonly<Record<string, string>>): Pasted {
  const dashes = words.indexOf("--");
  const options = dashes < 0 ? words : words.slice(0, dashes);
  const env = { ...added, ...Object.fromEntries(valuesOf(options, /^(?:-e|--env)$/).flatMap(assignment)) };
  const plain = options.filter((one, at) => !one.startsWith("-") && !/^-[^=]*$/.test(options[at - 1] ?? ""));
  const [name = "", first = "", ...rest] = plain;
  if (URL_ALONE.test(first)) {
    const headers = Object.fromEntries(valuesOf(options, /^(?:-H|--header)$/).flatMap(headerIn));
    return { kind: "url", body: toEndpoint(first, headers), name };
  }
  const launch = dashes < 0 ? [first, ...rest] : words.slice(dashes + 1);
  const found = ofWords(launch.filter(Boolean), env);
  return "body" in found ? { ...found, name } : found;
}

/** A record that the gateway read from a file, with the members that it left out. */
export function completed(record: Readonly<Record<string, unknown>>): Body {
  const body = record as unknown as Body;
  return {
    ...body,
    stdio: body.stdio ? { ...NO_LAUNCH, ...body.stdio } : null,
    http: body.http ? { ...NO_ENDPOINT, ...body.http } : null,
  };
}

const NO_LAUNCH = { args: [], env: {}, env_from: [] };
const NO_ENDPOINT = { headers: {} };
