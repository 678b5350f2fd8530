/** The settings of client programs: with a key filled in, and as a link that installs them. */
import type { Shapes } from "@/api/client";

export type Client = Shapes["AssistantShown"];

/** Every form in which settings refer to the key. */
const REFERENCE = /\$\{(?:env:)?TOOLGATE_KEY\}|\$TOOLGATE_KEY\b|<your key>/g;

/** The same settings with the key itself. A key has no character that JSON or a shell would interpret. */
export function withKey(client: Client, key: string): Client {
  if (!/^[\w.~-]+$/.test(key)) return client;
  const fill = (text: string) => text.replace(REFERENCE, () => key);
  return {
    ...client,
    document: JSON.parse(fill(JSON.stringify(client.document))) as Client["document"],
    command: client.command === null ? null : fill(client.command),
  };
}

export interface InstallLink {
  readonly title: string;
  readonly url: string;
}

/** The link that installs these settings; null if the client has none. */
export function installLink({ id, title, document }: Client): InstallLink | null {
  const [section] = Object.values(document);
  const [found] = Object.entries((section ?? {}) as Record<string, object>);
  if (found === undefined) return null;
  const [name, entry] = found;
  if (id === "cursor") {
    const query = `name=${encodeURIComponent(name)}&config=${encodeURIComponent(base64(JSON.stringify(entry)))}`;
    return { title: `Open in ${title}`, url: `cursor://anysphere.cursor-deeplink/mcp/install?${query}` };
  }
  if (id === "vscode") {
    const config = encodeURIComponent(JSON.stringify({ name, ...entry }));
    return { title: `Open in ${title}`, url: `vscode:mcp/install?${config}` };
  }
  return null;
}

function base64(text: string): string {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

/** Whether only programs on the gateway's own machine reach `url`. */
export function isOnlyHere(url: string): boolean {
  if (!URL.canParse(url)) return false;
  const { hostname } = new URL(url);
  return hostname === "localhost" || hostname === "[::1]" || /^127(\.\d{1,3}){3}$/.test(hostname);
}
