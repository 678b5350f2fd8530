/** The credential of this tab: kept for the tab alone, sent with every request, and never shown. */
const PLACE = "toolgate.credential";

export function credential(): string | null {
  return sessionStorage.getItem(PLACE);
}

export function setCredential(token: string | null): void {
  if (token === null) sessionStorage.removeItem(PLACE);
  else sessionStorage.setItem(PLACE, token);
}
