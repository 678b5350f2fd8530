/** The credential of this tab: kept for the tab alone, sent with every request, and never shown. */
const PLACE = "toolgate.credential";

export function credential(): string | null {
  return sessionStorage.getItem(PLACE);
}

/** How the last session of this tab ended, if not by logging out: its credential is no longer accepted. */
let ended: "key" | "token" | null = null;

export function endedBy(): "key" | "token" | null {
  return ended;
}

/** Drop a credential that the gateway rejected. */
export function endSession(): void {
  const token = credential();
  if (token === null) return;
  // A token of an issuer has three parts, a key has none.
  ended = token.split(".").length === 3 ? "token" : "key";
  setCredential(null);
}

export function setCredential(token: string | null): void {
  if (token === null) sessionStorage.removeItem(PLACE);
  else {
    ended = null;
    sessionStorage.setItem(PLACE, token);
  }
}
