/** What a pasted server lacks: placeholders, empty values, variables of the gateway, and secrets written out. */
import { reference } from "./paste";
import type { Body } from "./server-form";
import { looksSecret } from "./shell-line";

/** Where a blank is: the part of the record, and the name or the place in it. */
type Part = "env" | "headers" | "args" | "url";

export interface Blank {
  /** Unique in its body. */
  readonly key: string;
  readonly part: Part;
  readonly name: string;
  /** What it is of, as people read it. */
  readonly label: string;
  readonly text: string;
  readonly begin: number;
  readonly end: number;
  readonly isSecret: boolean;
  /** missing: someone must fill it in. reference: a variable of the gateway. secret: it is written out. */
  readonly was: "missing" | "reference" | "secret";
  /** The variable of the gateway that may hold it. */
  readonly variable: string;
}

export interface Answer {
  readonly isFromGateway: boolean;
  readonly value: string;
  readonly variable: string;
}

export type Answers = Readonly<Record<string, Answer>>;

const REFERENCE = /\$\{ENV:([A-Za-z_]\w*)\}/;
const HOLE = new RegExp(
  [
    REFERENCE.source,
    String.raw`<([^<>\n]{1,80})>`,
    String.raw`\{([A-Za-z_][\w.-]*)\}`,
    String.raw`\b((?:YOUR|MY|INSERT|REPLACE|ENTER)[-_][A-Z0-9_-]+|your[-_][a-z][a-z0-9_-]*)`,
    String.raw`(/path/to(?:/[\w.-]+)*|/(?:Users|home)/(?:username|you|user|me)(?:/[\w.-]+)*)`,
  ].join("|"),
  "g",
);
/** A placeholder for a value. */
const EMPTY =
  /^(?:[\w-]{0,12}?(?:x{4,}|\.{3}|…|\*{3,})|changeme|change[-_]me|todo|tbd|xxx|placeholder|(?:your|my|insert|replace|enter|add|paste)[-_ ].*)$/i;

function variableOf(text: string): string {
  const name = text
    .replace(/[^A-Za-z0-9]+/g, "_")
    .replace(/^_+|_+$/g, "")
    .toUpperCase();
  return name === "" ? "VALUE" : /^\d/.test(name) ? `_${name}` : name;
}

interface Source {
  readonly part: Part;
  readonly name: string;
  readonly label: string;
  readonly text: string;
  readonly isSecret: boolean;
}

function whole(source: Source, was: Blank["was"]): Blank {
  const { part, name, label, text, isSecret } = source;
  const variable = variableOf(part === "env" ? name : label);
  return {
    key: `${part} ${name}`,
    part,
    name,
    label,
    text,
    begin: 0,
    end: text.length,
    isSecret,
    was,
    variable,
  };
}

/** The blanks in one text of a body. */
function blanksIn(source: Source): Blank[] {
  const { part, name, text } = source;
  const isEmpty = text.trim() === "" ? part === "env" || part === "headers" : EMPTY.test(text.trim());
  if (isEmpty) return [whole(source, "missing")];
  const found = [...text.matchAll(HOLE)].map((match): Blank => {
    const inner = match.slice(1).find((one) => one !== undefined) ?? "";
    const isAll = match[0] === text;
    return {
      ...source,
      key: `${part} ${name} ${match.index}`,
      label: isAll && part !== "args" && part !== "url" ? source.label : `${source.label}: ${inner}`,
      begin: match.index,
      end: match.index + match[0].length,
      isSecret: source.isSecret || looksSecret(inner),
      was: match[1] === undefined ? "missing" : "reference",
      variable: match[1] ?? (isAll && part === "env" ? name : variableOf(inner)),
    };
  });
  if (found.length > 0) return found;
  const isWritten = source.isSecret && !text.includes("$" + "{ENV:");
  return isWritten ? [whole(source, "secret")] : [];
}

/** The option that an argument is the value of, where it looks like a secret. */
function optionOf(args: readonly string[], at: number): string {
  const before = args[at - 1] ?? "";
  return /^--?[A-Za-z][\w-]*$/.test(before) ? before.replace(/^-+/, "") : "";
}

/** Variables that a container gets from the program that runs it. */
function passedOn(command: string, args: readonly string[], env: Readonly<Record<string, string>>): string[] {
  if (!/(?:^|\/)(?:docker|podman|nerdctl)$/.test(command)) return [];
  return args
    .filter((one, at) => /^(?:-e|--env)$/.test(args[at - 1] ?? "") && /^[A-Za-z_]\w*$/.test(one))
    .filter((one) => !(one in env));
}

export function blanksOf(body: Body): Blank[] {
  const { stdio, http } = body;
  const args = stdio?.args ?? [];
  const env = stdio?.env ?? {};
  const sources: Source[] = [
    ...passedOn(stdio?.command ?? "", args, env).map((name) => ["env", name, ""] as const),
    ...Object.entries(env).map(([name, text]) => ["env", name, text] as const),
    ...Object.entries(http?.headers ?? {}).map(([name, text]) => ["headers", name, text] as const),
  ].map(([part, name, text]) => ({ part, name, label: name, text, isSecret: looksSecret(name) }));
  args.forEach((text, at) => {
    const option = optionOf(args, at);
    const label = option === "" ? `Argument ${at + 1}` : option;
    const isContainers = /^(?:-e|--env)$/.test(args[at - 1] ?? "");
    const isSecret = !isContainers && option !== "" && looksSecret(option);
    sources.push({ part: "args", name: String(at), label, text, isSecret });
  });
  if (http) sources.push({ part: "url", name: "", label: "URL", text: http.url, isSecret: false });
  return sources.flatMap(blanksIn);
}

export function answerOf(blank: Blank, answers: Answers): Answer {
  const { was, text, variable } = blank;
  const usual = { isFromGateway: was === "reference", value: was === "secret" ? text : "", variable };
  return answers[blank.key] ?? usual;
}

const VARIABLE = /^[A-Za-z_]\w*$/;

/** Whether nothing more has to be typed for it. */
export function isAnswered(blank: Blank, answers: Answers): boolean {
  const { isFromGateway, value, variable } = answerOf(blank, answers);
  return isFromGateway ? VARIABLE.test(variable) : value !== "";
}

/** `body` with the answers in place of its blanks. */
export function filled(body: Body, blanks: readonly Blank[], answers: Answers): Body {
  const texts = new Map<string, string>();
  for (const one of [...blanks].sort((a, b) => b.begin - a.begin)) {
    const at = `${one.part} ${one.name}`;
    const before = texts.get(at) ?? one.text;
    const { isFromGateway, value, variable } = answerOf(one, answers);
    const put = isFromGateway ? reference(variable) : value;
    texts.set(at, before.slice(0, one.begin) + put + before.slice(one.end));
  }
  const table = (part: Part, known: Readonly<Record<string, string>> | undefined) => {
    const added = blanks.filter((one) => one.part === part).map((one) => one.name);
    const names = [...new Set([...Object.keys(known ?? {}), ...added])];
    return Object.fromEntries(
      names.map((name) => [name, texts.get(`${part} ${name}`) ?? known?.[name] ?? ""]),
    );
  };
  const { stdio, http } = body;
  return {
    ...body,
    ...(stdio
      ? {
          stdio: {
            ...stdio,
            args: (stdio.args ?? []).map((one, at) => texts.get(`args ${at}`) ?? one),
            env: table("env", stdio.env),
          },
        }
      : {}),
    ...(http
      ? { http: { ...http, url: texts.get("url ") ?? http.url, headers: table("headers", http.headers) } }
      : {}),
  };
}
