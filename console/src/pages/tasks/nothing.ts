/** Why callers of a task see nothing, and where to change that. */
import type { components } from "@/api/schema";
import type { WhyNothing } from "@/parts/offered";
import { standing } from "@/parts/standing";

type Shapes = components["schemas"];
type Server = Pick<Shapes["ServerShown"], "server_id" | "enabled" | "health" | "nodes">;
type Profile = Pick<Shapes["ProfileOverview"], "profile_id" | "tools" | "unlisted">;
type Seen = Pick<Shapes["TaskOverview"], "task_id" | "tools" | "refusal">;

type Config = Readonly<Record<string, string>>;

function read(config: Config, key: string): unknown {
  try {
    return JSON.parse(config[key] ?? "null");
  } catch {
    return null;
  }
}

function listIn(config: Config, key: string): string[] | null {
  const value = read(config, key);
  return Array.isArray(value) ? value.map(String) : null;
}

/** Null: it offers something, or what it is made of is not known yet. */
export function whyNothing(
  task: Seen,
  config: Config | undefined,
  servers: readonly Server[] | undefined,
  profiles: readonly Profile[] | undefined,
): WhyNothing | null {
  if (task.tools > 0 || config === undefined || servers === undefined || profiles === undefined) return null;
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
  const silenced = noProfile(read(config, "mcp.profile"), profiles, edit("Choose a profile"));
  if (silenced !== null) return silenced;
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

/** What is wrong with its profile, if something is. */
function noProfile(id: unknown, profiles: readonly Profile[], other: WhyNothing["todo"]): WhyNothing | null {
  if (typeof id !== "string") return null;
  const found = profiles.find((one) => one.profile_id === id);
  if (found === undefined) return { reason: `Its profile \`${id}\` does not exist.`, todo: other };
  if (found.tools > 0) return null;
  const todo = { title: `Open ${id}`, path: `/profiles/${encodeURIComponent(id)}` };
  const [first] = found.unlisted;
  const because = first === undefined ? "." : `: its server \`${first}\` has not listed tools.`;
  return { reason: `Its profile \`${id}\` offers nothing${because}`, todo };
}

/** What is wrong with a server that lists nothing. */
function silentServer(server: Server): string {
  const { state, lastError } = standing(server);
  const name = `Its server \`${server.server_id}\``;
  if (!server.enabled) return `${name} is disabled.`;
  if (state === "starting") return `${name} is starting.`;
  if (lastError !== "") return `${name} is down: ${lastError}.`;
  return state === "connected" ? `${name} lists no tools.` : `${name} has not listed its tools yet.`;
}
