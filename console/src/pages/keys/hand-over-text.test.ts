import { expect, test } from "vitest";
import type { Client } from "@/parts/client-setup";
import { handOverText } from "./hand-over-text";

const URL_OF = "http://127.0.0.1:8080/api/mcp/t/review";
const CLIENT: Client = {
  id: "claude-code",
  title: "Claude Code",
  file: "~/.claude.json",
  document: { mcpServers: { review: { type: "http", url: URL_OF } } },
  command: "claude mcp add review",
  after: "start `claude` again",
};
const BOB = {
  who: "Bob",
  keyId: "bob",
  task: "review",
  tools: 2,
  url: URL_OF,
  secret: "tg_x",
  expiresAtS: new Date(2030, 0, 31, 12).getTime() / 1000,
  client: CLIENT,
  keyPage: "http://127.0.0.1:8080/console/keys/bob",
};

test("one text has the URL, the key, the settings, and how to revoke it", () => {
  expect(handOverText(BOB)).toBe(`Toolgate access for Bob: task review, 2 tools

URL: ${URL_OF}
     (reachable on the gateway's own machine only)
Key: tg_x (keep it secret, valid through 2030-01-31)

Claude Code
Run this:
  claude mcp add review
or paste this into ~/.claude.json:
  {
    "mcpServers": {
      "review": {
        "type": "http",
        "url": "${URL_OF}"
      }
    }
  }
then start claude again

Any other MCP client: use the URL over streamable HTTP, with the header "Authorization: Bearer <key>".

To revoke this key, an admin runs: toolgate keys delete bob
or opens http://127.0.0.1:8080/console/keys/bob`);
});

test("a key that is sent another way is not in the text", () => {
  const text = handOverText({
    ...BOB,
    secret: null,
    expiresAtS: null,
    url: "https://tools.example.com/api/mcp",
  });
  expect(text).toContain("Key: sent separately. Set it as TOOLGATE_KEY");
  expect(text).not.toContain("own machine only");
});
