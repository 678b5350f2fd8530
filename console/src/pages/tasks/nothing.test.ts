import { expect, test } from "vitest";
import { whyNothing } from "./nothing";

function server(server_id: string, tools: number, last_error = "") {
  const state = last_error === "" ? "connected" : "down";
  return { server_id, enabled: true, nodes: [], health: { state, tools, last_error, hint: "" } } as never;
}

const seen = { task_id: "review", tools: 0, refusal: null };
const PROFILES = [{ profile_id: "billed", tools: 0, unlisted: ["billing"] }];
const enabled = { "mcp.enabled": "true" };
const why = (config: Record<string, string>, ...servers: never[]) =>
  whyNothing(seen, config, servers, PROFILES)?.reason;

test("the reason is the first thing to change", () => {
  expect(why({})).toBe("The task is disabled.");
  expect(why({ ...enabled, "mcp.default_server_ids": "[]" })).toBe("It has no servers.");
  expect(why({ ...enabled, "mcp.default_server_ids": "[]", "mcp.allowed_server_ids": '["git"]' })).toContain(
    "each request must name",
  );
  expect(why({ ...enabled, "mcp.default_server_ids": '["gti"]' })).toBe(
    "Its server `gti` is not registered.",
  );
});

test("a server that is down is named with its error, and one that lists tools is not blamed", () => {
  const config = { ...enabled, "mcp.default_server_ids": '["billing", "git"]' };
  const down = server("billing", 0, "connection refused");
  expect(why(config, down)).toBe("Its server `billing` is down: connection refused.");
  expect(why(config, down, server("git", 12))).toBe("Its lists exclude all tools of its servers.");
});

test("a profile that is missing or offers nothing is named", () => {
  expect(why({ ...enabled, "mcp.profile": '"gone"' })).toBe("Its profile `gone` does not exist.");
  expect(why({ ...enabled, "mcp.profile": '"billed"' })).toBe(
    "Its profile `billed` offers nothing: its server `billing` has not listed tools.",
  );
});

test("a denied request has its own message, and a task with tools has no reason", () => {
  const refusal = { code: "too_many_tools", message: "the scope has 200 tools", hint: "narrow it" } as never;
  expect(whyNothing({ ...seen, refusal }, enabled, [], [])?.reason).toBe(
    "the scope has 200 tools. narrow it",
  );
  expect(whyNothing({ ...seen, tools: 1 }, enabled, [], [])).toBeNull();
  expect(whyNothing(seen, enabled, undefined, [])).toBeNull();
});
