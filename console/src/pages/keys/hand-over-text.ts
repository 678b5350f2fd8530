/** Everything that someone needs to connect, as one text to send. */
import { type Client, installLink, isOnlyHere } from "@/parts/client-setup";
import { day } from "@/parts/time";

export interface HandedOver {
  readonly who: string;
  readonly keyId: string;
  readonly task: string;
  readonly tools: number;
  readonly url: string;
  /** Null: the key is sent another way. */
  readonly secret: string | null;
  readonly expiresAtS: number | null;
  /** With the key filled in, if `secret` is known. */
  readonly client: Client;
  /** The page of the key in the console. */
  readonly keyPage: string;
}

export function handOverText(one: HandedOver): string {
  const tools = one.tools === 1 ? "1 tool" : `${one.tools} tools`;
  const until = one.expiresAtS === null ? "" : `, valid through ${day(one.expiresAtS * 1000)}`;
  const key =
    one.secret === null
      ? `Key: sent separately${until}. Set it as TOOLGATE_KEY where the client starts.`
      : `Key: ${one.secret} (keep it secret${until})`;
  return [
    `Toolgate access for ${one.who}: task ${one.task}, ${tools}`,
    [
      `URL: ${one.url}`,
      isOnlyHere(one.url) ? "     (reachable on the gateway's own machine only)" : null,
      key,
    ],
    setupOf(one.client),
    `Any other MCP client: use the URL over streamable HTTP, with the header "Authorization: Bearer <key>".`,
    [`To revoke this key, an admin runs: toolgate keys delete ${one.keyId}`, `or opens ${one.keyPage}`],
  ]
    .map((part) => (Array.isArray(part) ? part.filter((line) => line !== null).join("\n") : part))
    .join("\n\n");
}

function setupOf(client: Client): string {
  const link = installLink(client);
  const ways = [
    link === null ? null : `Open this link:\n  ${link.url}`,
    client.command === null ? null : `Run this:\n  ${client.command}`,
    `Paste this into ${client.file ?? "its settings"}:\n${indent(JSON.stringify(client.document, null, 2))}`,
  ].filter((one) => one !== null);
  const setup = ways
    .join("\nor ")
    .replaceAll(/\nor ([A-Z])/g, (_, first: string) => `\nor ${first.toLowerCase()}`);
  return `${client.title}\n${setup}\nthen ${client.after.replaceAll("`", "")}`;
}

function indent(text: string): string {
  return text.replaceAll(/^/gm, "  ");
}
