/** The two halves of a login at an issuer: what goes there, and what is kept here to prove that it was us (RFC 7636). */

const PLACE = "toolgate.login";

export interface Begun {
  readonly verifier: string;
  readonly state: string;
  readonly issuer: string;
  /** The page to go on with. */
  readonly from: string;
}

function encode(bytes: Uint8Array): string {
  return btoa(String.fromCharCode(...bytes))
    .replaceAll("+", "-")
    .replaceAll("/", "_")
    .replaceAll("=", "");
}

function random(): string {
  return encode(crypto.getRandomValues(new Uint8Array(32)));
}

export function redirectUri(): string {
  return `${window.location.origin}/console/login`;
}

export interface Issuer {
  readonly issuer: string;
  readonly authorization_endpoint: string;
  readonly client_id: string;
  readonly scope: string;
}

/** Where the browser has to go. What proves the way back stays in this tab. */
export async function toIssuer(issuer: Issuer, from: string): Promise<string> {
  const begun: Begun = { verifier: random(), state: random(), issuer: issuer.issuer, from };
  sessionStorage.setItem(PLACE, JSON.stringify(begun));
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(begun.verifier));
  const url = new URL(issuer.authorization_endpoint);
  const query = {
    response_type: "code",
    client_id: issuer.client_id,
    redirect_uri: redirectUri(),
    scope: issuer.scope,
    state: begun.state,
    code_challenge: encode(new Uint8Array(digest)),
    code_challenge_method: "S256",
  };
  for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
  return url.href;
}

/** What was begun in this tab, once. Null where that was nothing, or something else: another login, or one that another
 *  issuer answers (RFC 9207). */
export function takeBegun(answer: URLSearchParams): Begun | null {
  const begun = isBegunHere(answer) ? kept() : null;
  sessionStorage.removeItem(PLACE);
  return begun;
}

/** Whether `answer` is to the login that was begun in this tab. */
export function isBegunHere(answer: URLSearchParams): boolean {
  const begun = kept();
  if (begun === null) return false;
  return begun.state === answer.get("state") && (answer.get("iss") ?? begun.issuer) === begun.issuer;
}

function kept(): Begun | null {
  const text = sessionStorage.getItem(PLACE);
  return text === null ? null : (JSON.parse(text) as Begun);
}
