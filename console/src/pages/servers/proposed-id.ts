/** The ID that is proposed for a new server: what its command starts, or the host of its URL. */
import type { Body } from "./server-form";

const RUNNERS = new Set(["npx", "bunx", "pnpx", "uvx", "pipx", "docker", "podman", "nerdctl", "dnx"]);
const SUBCOMMANDS = new Set(["run", "dlx", "x", "exec", "tool", "start"]);
const PROGRAMS = new Set([
  "node",
  "deno",
  "bun",
  "python",
  "python3",
  "uv",
  "npm",
  "pnpm",
  "yarn",
  "sh",
  "bash",
]);
/** Options of runners whose value is the next word. */
const VALUED = new Set([
  "-e",
  "--env",
  "-v",
  "--volume",
  "--mount",
  "--from",
  "--with",
  "--network",
  "--name",
]);
const GENERIC = new Set([
  "index",
  "main",
  "server",
  "cli",
  "app",
  "dist",
  "build",
  "src",
  "mcp",
  "out",
  "bin",
]);

/** What starts: the package or the script of a command. */
function startedBy([command = "", ...args]: readonly string[]): string {
  const program =
    command
      .split(/[\\/]/)
      .at(-1)
      ?.replace(/\.(?:exe|cmd)$/, "") ?? "";
  if (!RUNNERS.has(program) && !PROGRAMS.has(program)) return program;
  for (let at = 0; at < args.length; at += 1) {
    const word = args[at] ?? "";
    if (VALUED.has(word) || word === "--directory") at += 1;
    else if (!word.startsWith("-") && !SUBCOMMANDS.has(word)) return word;
  }
  return program;
}

/** The program that downloads what a command starts; empty: it downloads nothing. */
export function runnerOf([command = "", ...args]: readonly string[]): string {
  const program =
    command
      .split(/[\\/]/)
      .at(-1)
      ?.replace(/\.(?:exe|cmd)$/, "") ?? "";
  if (RUNNERS.has(program)) return program;
  return program === "uv" && args[0] === "tool" ? "uv" : "";
}

function slug(text: string): string {
  const words = text
    .toLowerCase()
    .split(/[^a-z0-9]+/)
    .filter((one) => !["", "mcp", "server", "servers", "modelcontextprotocol"].includes(one));
  return words.join("-").slice(0, 37).replace(/-+$/, "");
}

export function idOfCommand(words: readonly string[]): string {
  const parts = startedBy(words)
    .replace(/(?<=.)(?:@[^/]*|==.*|:[^/]*)$/, "")
    .split(/[\\/]/)
    .map((one) => one.replace(/\.(?:m?[jt]s|py|sh)$/, ""));
  const named = parts.findLast((one) => !GENERIC.has(one) && slug(one) !== "");
  return slug(named ?? "") || "server";
}

export function idOfUrl(url: string): string {
  let host = "";
  try {
    host = new URL(url).hostname;
  } catch {
    return "server";
  }
  if (/^[\d.]+$|:/.test(host)) return "server";
  const labels = host.split(".");
  const named = labels
    .slice(0, labels.length > 1 ? -1 : undefined)
    .filter((one) => !/^(?:www|mcp|api|app|co)$/.test(one));
  return slug(named.at(-1) ?? "") || "server";
}

/** An ID for `body` that no other server has. */
export function proposeId(body: Body, name: string, taken: ReadonlySet<string>): string {
  const { stdio, http } = body;
  const own = stdio ? idOfCommand([stdio.command, ...(stdio.args ?? [])]) : idOfUrl(http?.url ?? "");
  const stem = body.server_id || (name && slug(name)) || own;
  if (!taken.has(stem)) return stem;
  for (let number = 2; ; number += 1) if (!taken.has(`${stem}-${number}`)) return `${stem}-${number}`;
}
