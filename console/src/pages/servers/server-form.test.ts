import { expect, test } from "vitest";
import { BLANK, type Body, rebase, toBody, toForm, unknownMembers } from "./server-form";

const STDIO: Body = {
  version: 1,
  server_id: "files",
  transport: "stdio",
  stdio: { command: "npx", args: ["-y", "x"], env: { TOKEN: "***" }, env_from: ["HOME"], cwd: "/srv" },
  http: null,
  display_name: "Files",
  tool_namespace: "mcp.files",
  allowed_tools: ["read_*"],
  approval_policy: { default: "policy", per_tool: { write: "always" }, in_place: false },
  budgets: { tool_timeout_ms: 1000, max_concurrency: 2, max_tool_output_bytes: 4096 },
  tags: ["a"],
  category: "Data",
  enabled: false,
  sharing: "per_session",
  idle_timeout_s: 60,
  start_timeout_s: 90,
  list_ttl_s: 60,
  prewarm: true,
  redaction: { hide: ["customer_*"], show: ["key"], arguments: "none" },
  package: { version: "1.0.0", sha256: "0".repeat(64) },
};
const HTTP: Body = {
  ...STDIO,
  transport: "streamable_http",
  stdio: null,
  http: {
    url: "https://x.example/mcp",
    headers: { "X-Team": "blue" },
    auth_ref: null,
    oauth: {
      grant: "client_credentials",
      client_id: "me",
      client_secret_ref: "s",
      issuer: "https://i.example",
      scopes: ["read"],
      per_principal: false,
    },
  },
  package: null,
};

test.each([STDIO, HTTP])("every field of a record comes back out of its form", (record) => {
  expect(toBody(toForm(record))).toEqual(record);
});

test("an empty form has the defaults of a record", () => {
  const body = toBody(toForm(BLANK));
  expect(body).toMatchObject({ enabled: true, allowed_tools: [], sharing: "shared", tool_namespace: null });
  expect(body.budgets).toEqual({
    tool_timeout_ms: 30_000,
    max_concurrency: 16,
    max_tool_output_bytes: 1_048_576,
  });
});

test("what was typed stays, and what others saved meanwhile comes in under it", () => {
  const base = toForm(STDIO);
  const typed = { ...base, display_name: "Mine", args: ["-y", "z"] };
  const theirs = { ...base, display_name: "Theirs", tags: ["b"], args: base.args };
  expect(rebase(base, typed, theirs)).toEqual({ ...theirs, display_name: "Mine", args: ["-y", "z"] });
});

test("members that no form shows are named", () => {
  expect(unknownMembers({ ...STDIO, colour: "red" })).toEqual(["colour"]);
});
