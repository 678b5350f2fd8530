/** Words for layers, and where to change what they decide. */
import { type Decision, LAYERS, type Layer } from "./decisions";

export const LAYER_WORDS: Readonly<Record<Layer, { title: string; about: string }>> = {
  platform: {
    title: "Platform",
    about: "registered, enabled, in the server's allowed tools, not quarantined",
  },
  key: { title: "Key", about: "within the ceiling of the caller's key" },
  caller: { title: "Caller", about: "the integrations that the caller switched on for itself" },
  task: { title: "Task", about: "its servers, allowlist, denylist, profile and tags" },
  request: { title: "Request", about: "what the URL selects" },
};

/** What one layer has to do with a decision. `isWhole`: it was made about the whole server. */
export function sayOf(
  layer: Layer,
  decision: Decision,
  isWhole: boolean,
): { says: "yes" | "no" | "idle"; words: string } {
  const place = LAYERS.indexOf(layer) - LAYERS.indexOf(decision.layer);
  if (decision.allowed) return { says: "yes", words: place === 0 ? "allows it by" : "allows it." };
  if (place === 0) return { says: "no", words: "excludes it:" };
  if (place > 0) return { says: "idle", words: "not evaluated." };
  return { says: "yes", words: isWhole ? "does not exclude its server." : "allows it." };
}

/** The console page where this can be changed; null if no page can. */
export function placeToChange(
  decision: Decision,
  task: string | null,
): { path: string; title: string } | null {
  const server = `/servers/${encodeURIComponent(decision.server_id)}`;
  const profile = /^(?:mcp\.profile|\?profile=) `([^`]*)`/.exec(decision.rule)?.[1];
  if (decision.reason === "quarantined") {
    return { path: `/pins/${encodeURIComponent(decision.server_id)}`, title: "Open the pin" };
  }
  if (profile !== undefined) {
    return { path: `/profiles/${encodeURIComponent(profile)}`, title: "Open the profile" };
  }
  if (decision.reason === "unknown_server") return { path: "/servers", title: "Open the servers" };
  if (decision.layer === "platform") return { path: server, title: "Open the server" };
  if (decision.layer === "key") return { path: "/keys", title: "Open the keys" };
  if (decision.layer === "task" && task !== null) {
    return { path: `/tasks/${encodeURIComponent(task)}`, title: "Open the task" };
  }
  return null;
}
