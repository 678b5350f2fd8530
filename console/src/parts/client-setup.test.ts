import { expect, test } from "vitest";
import { type Client, installLink, isOnlyHere, withKey } from "./client-setup";

const URL_OF = "http://127.0.0.1:8080/api/mcp/t/review";

function client(id: Client["id"], section: string, reference: string, command: string | null): Client {
  const entry = { url: URL_OF, headers: { Authorization: `Bearer ${reference}` } };
  return { id, title: id, file: null, document: { [section]: { review: entry } }, command, after: "" };
}

const BY_VARIABLE = "$" + "{env:TOOLGATE_KEY}";
const CURSOR = client("cursor", "mcpServers", BY_VARIABLE, null);
const VSCODE = client("vscode", "servers", BY_VARIABLE, null);
const ENTRY = { url: URL_OF, headers: { Authorization: `Bearer ${BY_VARIABLE}` } };

test("a key is filled in wherever settings refer to it", () => {
  const command = 'claude mcp add review --header "Authorization: Bearer $TOOLGATE_KEY"';
  const claude = withKey(client("claude-code", "mcpServers", "$" + "{TOOLGATE_KEY}", command), "tg_a-b_c");
  expect(claude.command).toBe('claude mcp add review --header "Authorization: Bearer tg_a-b_c"');
  expect(JSON.stringify(claude.document)).toContain('"Bearer tg_a-b_c"');
  const desktop = withKey(client("claude-desktop", "mcpServers", "<your key>", null), "tg_$&");
  expect(JSON.stringify(desktop.document)).toContain("<your key>");
});

test("Cursor and VS Code have links that install the settings", () => {
  const [name, config] = new URLSearchParams(installLink(CURSOR)?.url.split("?")[1]).values();
  expect(name).toBe("review");
  expect(JSON.parse(atob(config ?? ""))).toEqual(ENTRY);
  const link = installLink(VSCODE)?.url ?? "";
  expect(link.startsWith("vscode:mcp/install?")).toBe(true);
  expect(JSON.parse(decodeURIComponent(link.split("?")[1] ?? ""))).toEqual({
    name: "review",
    ...ENTRY,
  });
  expect(installLink(client("generic", "mcpServers", "", null))).toBeNull();
});

test("a URL on loopback is for its own machine only", () => {
  expect(["http://localhost:1/x", "http://[::1]/", URL_OF].map(isOnlyHere)).toEqual([true, true, true]);
  expect(["https://tools.example.com/", "http://192.168.1.2/", "x"].map(isOnlyHere)).toEqual([
    false,
    false,
    false,
  ]);
});
