/** Layers in the words of people, and where to change what they decide. */
import { type Decision, LAYERS, type Layer } from "./decisions";

export const LAYER_WORDS: Readonly<Record<Layer, { title: string; about: string }>> = {
  platform: { title: "Platform", about: "registered, enabled, allowed by its server, as approved" },
  key: { title: "Key", about: "within the ceiling of the caller's key" },
  caller: { title: "Caller", about: "the integrations that the caller switched on for itself" },
  task: { title: "Task", about: "its servers, allowlist, denylist, profile and tags" },
  request: { title: "Request", about: "what the URL asks for" },
};

/** What one layer has to do with a decision. `isWhole`: it was made about the whole server. */
export function sayOf(
  layer: Layer,
  decision: Decision,
  isWhole: boolean,
): { says: "yes" | "no" | "idle"; words: string } {
  const place = LAYERS.indexOf(layer) - LAYERS.indexOf(decision.layer);
  if (decision.allowed)
    return { says: "yes", words: place === 0 ? "lets it through by" : "lets it through." };
  if (place === 0) return { says: "no", words: "objects:" };
  if (place > 0) return { says: "idle", words: "was not asked any more." };
  return { says: "yes", words: isWhole ? "does not object to its server." : "lets it through." };
}

/** Where that can be changed, as a path of the console; null where it cannot, here. */
export function placeToChange(
  decision: Decision,
  task: string | null,
): { path: string; title: string } | null {
  const server = `/servers/${encodeURIComponent(decision.server_id)}`;
  const profile = /^(?:mcp\.profile|\?profile=) `([^`]*)`/.exec(decision.rule)?.[1];
  if (decision.reason === "quarantined") {
    return { path: `/pins/${encodeURIComponent(decision.server_id)}`, title: "Open its pin" };
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
