import { describe, expect, it } from "vitest";
import type { Server } from "./server-form";
import { nextStepOf, offerOf, statusOf } from "./server-status";

function server(state: string, more: object = {}): Server {
  const health = {
    state,
    last_error: "it exited with code 1: no key",
    hint: "set the key",
    tools: 4,
    stderr_tail: "x",
  };
  const offer = { offered: 2, listed: 4, reason: "not_in_server_allowlist" };
  return {
    server_id: "git",
    enabled: true,
    login: null,
    nodes: [],
    health,
    offer,
    ...more,
  } as unknown as Server;
}

describe("a server in words", () => {
  it("says the state and the cause", () => {
    expect(statusOf(server("down"))).toMatchObject({
      words: "failed",
      cause: "it exited with code 1: no key",
    });
    expect(statusOf(server("connected"))).toMatchObject({ words: "connected", cause: "" });
    const health = { state: "starting", last_error: "", hint: "npx is downloading packages", tools: 0 };
    expect(statusOf(server("", { health }))).toMatchObject({ words: "starting (downloading packages)" });
    expect(statusOf(server("", { health: { ...health, hint: "" } }))).toMatchObject({ words: "starting" });
    const http = { url: "https://x", oauth: { grant: "authorization_code" } };
    expect(statusOf(server("down", { http }))).toMatchObject({ words: "needs login", tone: "warn" });
    expect(statusOf(server("connected", { http }))).toMatchObject({ words: "connected" });
    expect(statusOf(server("disabled"))).toMatchObject({ words: "disabled" });
  });

  it("says how much is offered, why nothing is, and where to change that", () => {
    expect(offerOf(server("connected"))).toMatchObject({ offered: 2, listed: 4, isNone: false, why: "" });
    const none = (reason: string) => server("connected", { offer: { offered: 0, listed: 4, reason } });
    expect(offerOf(none("deny_all"))).toMatchObject({ why: "no tool is allowed", to: "/servers/git/tools" });
    expect(offerOf(none("quarantined"))).toMatchObject({ to: "/pins/git" });
    expect(offerOf(server("down", { offer: { offered: 0, listed: 0, reason: "list_failed" } }))).toBeNull();
    expect(offerOf(server("idle", { offer: null }))).toBeNull();
  });

  it("knows the next step", () => {
    expect(nextStepOf(server("down")).label).toBe("Open output");
    expect(nextStepOf(server("connected"))).toEqual({ label: "Test", to: "" });
    const offer = { offered: 0, listed: 4, reason: "deny_all" };
    expect(nextStepOf(server("connected", { offer }))).toEqual({
      label: "Choose tools",
      to: "/servers/git/tools",
    });
  });
});
