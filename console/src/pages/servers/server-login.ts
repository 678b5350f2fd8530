/** A login to a server that starts here: the redirect URI, and the state kept in this tab. */

const PLACE = "toolgate.server-login";
/** Below the console. */
export const RETURN_PATH = "/servers/-/login";

export interface BegunLogin {
  readonly serverId: string;
  readonly state: string;
  readonly isShared: boolean;
  /** The page to return to; without it, that of the server. */
  readonly from?: string;
}

/** The redirect URI. Null: a code may return only to the user's machine, and this page is not served by it
 *  (RFC 8252, 7.3). */
export function returnUri(page: Pick<Location, "protocol" | "hostname" | "origin">): string | null {
  const isHere = page.hostname === "[::1]" || /^127(\.\d{1,3}){3}$/.test(page.hostname);
  return isHere && page.protocol === "http:" ? `${page.origin}/console${RETURN_PATH}` : null;
}

export function keepLogin(begun: BegunLogin): void {
  sessionStorage.setItem(PLACE, JSON.stringify(begun));
}

/** The login of this tab that `answer` belongs to, once. */
export function takeLogin(answer: URLSearchParams): BegunLogin | null {
  const kept = sessionStorage.getItem(PLACE);
  sessionStorage.removeItem(PLACE);
  const begun = kept === null ? null : (JSON.parse(kept) as BegunLogin);
  return begun?.state === answer.get("state") ? begun : null;
}
