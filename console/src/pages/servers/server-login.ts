/** A login to a server that is begun here: where the browser comes back to, and what is kept meanwhile, in this tab. */

const PLACE = "toolgate.server-login";
/** Below the console. */
export const RETURN_PATH = "/servers/-/login";

export interface BegunLogin {
  readonly serverId: string;
  readonly state: string;
  readonly isShared: boolean;
}

/** Where the browser is to come back to; null: a code may come back only to the machine of who logs in, and this page
 *  is not served by it (RFC 8252, 7.3). */
export function returnUri(page: Pick<Location, "protocol" | "hostname" | "origin">): string | null {
  const isHere = page.hostname === "[::1]" || /^127(\.\d{1,3}){3}$/.test(page.hostname);
  return isHere && page.protocol === "http:" ? `${page.origin}/console${RETURN_PATH}` : null;
}

export function keepLogin(begun: BegunLogin): void {
  sessionStorage.setItem(PLACE, JSON.stringify(begun));
}

/** What was begun in this tab and is answered by `answer`, once. */
export function takeLogin(answer: URLSearchParams): BegunLogin | null {
  const kept = sessionStorage.getItem(PLACE);
  sessionStorage.removeItem(PLACE);
  const begun = kept === null ? null : (JSON.parse(kept) as BegunLogin);
  return begun?.state === answer.get("state") ? begun : null;
}
