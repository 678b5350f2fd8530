/** Why callers of a task see nothing, and where to change that. */
import type { components } from "@/api/schema";
import type { WhyNothing } from "@/parts/offered";
import { standing } from "@/parts/standing";

type Shapes = components["schemas"];
type Server = Pick<Shapes["ServerShown"], "server_id" | "enabled" | "health" | "nodes">;
type Seen = Pick<Shapes["TaskOverview"], "task_id" | "tools" | "refusal">;

function listIn(config: Readonly<Record<string, string>>, key: string): string[] | null {
  try {
    const value: unknown = JSON.parse(config[key] ?? "null");
    return Array.isArray(value) ? value.map(String) : null;
  } catch {
    return null;
  }
}

/** Null: it offers something, or what it is made of is not known yet. */
export function whyNothing(
  task: Seen,
  config: Readonly<Record<string, string>> | undefined,
  servers: readonly Server[] | undefined,
): WhyNothing | null {
  if (task.tools > 0 || config === undefined || servers === undefined) return null;
  const id = encodeURIComponent(task.task_id);
  const edit = (title: string) => ({ title, path: `/tasks/${id}/edit` });
  const lens = { title: "See why", path: `/scope?task=${id}&show=out` };
  if (config["mcp.enabled"] !== "true") return { reason: "The task is disabled.", todo: edit("Enable it") };
  if (task.refusal) {
    return { reason: `${task.refusal.message}. ${task.refusal.hint}`, todo: lens };
  }
  const named = listIn(config, "mcp.default_server_ids");
  if (named?.length === 0) {
    const isAskable = (listIn(config, "mcp.allowed_server_ids") ?? []).length > 0;
    const reason = isAskable
      ? "It has no default servers: each request must name its servers."
      : "It has no servers.";
    return { reason, todo: edit("Choose servers") };
  }
  const known = new Map(servers.map((one) => [one.server_id, one]));
  const found = (named ?? []).flatMap((one) => known.get(one) ?? []);
  const [missing] = (named ?? []).filter((one) => !known.has(one));
  if (found.length === 0 && missing !== undefined) {
    return { reason: `Its server \`${missing}\` is not registered.`, todo: edit("Choose servers") };
  }
  const silent = found.find((one) => standing(one).tools === 0);
  if (silent !== undefined && found.every((one) => standing(one).tools === 0)) {
    const todo = {
      title: `Open ${silent.server_id}`,
      path: `/servers/${encodeURIComponent(silent.server_id)}`,
    };
    return { reason: silentServer(silent), todo };
  }
  return { reason: "Its lists exclude all tools of its servers.", todo: lens };
}

/** What is wrong with a server that lists nothing. */
export function silentServer(server: Server): string {
  const { state, lastError } = standing(server);
  const name = `Its server \`${server.server_id}\``;
  if (!server.enabled) return `${name} is disabled.`;
  if (state === "starting") return `${name} is starting.`;
  if (lastError !== "") return `${name} is down: ${lastError}.`;
  return state === "connected" ? `${name} lists no tools.` : `${name} has not listed its tools yet.`;
}
