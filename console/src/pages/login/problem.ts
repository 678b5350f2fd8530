/** The failure of a login as a sentence, and what to do about it. Never a status or a code of the protocol. */
import { ApiError } from "@/api/error";

export interface LoginProblem {
  readonly title: string;
  readonly todo: string;
}

const AWAY: LoginProblem = {
  title: "The gateway does not respond",
  todo: "Check that it is running (`toolgate status`), that the address of this page is right, and that your network or VPN is connected. Then try again.",
};

export function loginProblem(error: unknown): LoginProblem {
  if (!(error instanceof ApiError))
    return { title: error instanceof Error ? error.message : String(error), todo: "Start again." };
  const { status, message, hint } = error;
  if (status === 0 || status === 502 || status === 504) return AWAY;
  // What is wrong with an issuer's token, only the gateway knows.
  if (status === 401 && !/^the (token|issuer)/.test(message))
    return {
      title: "Unknown or revoked key",
      todo: "Check that you pasted all of it: keys begin with `tg_`. If it was revoked or has expired, ask an admin for another.",
    };
  if (status === 429)
    return { title: "Too many failed logins from your address", todo: "Wait a minute, then try again." };
  if (status >= 500)
    return {
      title: "The gateway cannot check your login now",
      todo: `${sentence(message)} Try again. If it stays so, an admin finds the cause in the gateway's log.`,
    };
  return { title: sentence(message), todo: hint === "" ? "Ask an admin." : sentence(hint) };
}

/** A text of the gateway, which begins in lower case and has no full stop, as a sentence. */
function sentence(text: string): string {
  const first = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.?!]$/.test(first) ? first : `${first}.`;
}
