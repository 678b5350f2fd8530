/** Login with a credential. */
import { useQueryClient } from "@tanstack/react-query";
import { ApiError, api, type Shapes, take } from "@/api/client";
import { leave } from "@/api/leave";
import { meQuery, reaches } from "@/api/me";
import { setCredential } from "@/api/session";
import { redirectUri, takeBegun } from "./pkce";

/** Log in with `token`. It is checked before it is stored, and outside the gate: that would unmount this
 *  page meanwhile. */
export function useEnter() {
  const queries = useQueryClient();
  return async (token: string) => {
    // A header takes no other characters, and no key has any.
    if (!/^[\x21-\x7e]+$/.test(token)) throw new ApiError(401, "unauthenticated", "the key is unknown", "");
    const headers = { Authorization: `Bearer ${token}` };
    const me = await take(api.GET("/api/v1/me", { headers }));
    const before = queries.getQueryData(meQuery.queryKey);
    if (before !== undefined && !mayGoOn(me, before)) await leave(queries);
    setCredential(token);
    queries.setQueryData(meQuery.queryKey, me);
    if (before !== undefined)
      void queries.invalidateQueries({ predicate: (one) => one.queryKey[0] !== "me" });
  };
}

/** Whether a caller may continue on the page of another: only if it sees all of it already. */
function mayGoOn(me: Shapes["MeShown"], before: Shapes["MeShown"]): boolean {
  const seesAll = reaches(before.role, "viewer") && reaches(me.role, before.role);
  return me.principal === before.principal || seesAll;
}

/** Completes the login of this tab with an issuer's response. Returns the page to continue with. */
export function useFinish() {
  const enter = useEnter();
  return async (answer: URLSearchParams): Promise<string> => {
    const begun = takeBegun(answer);
    if (begun === null) throw new Error("This login was not started in this tab. Start again.");
    const code = answer.get("code");
    if (code === null)
      throw new Error(
        answer.get("error_description") ?? answer.get("error") ?? "The issuer rejected the login.",
      );
    const body = { code, code_verifier: begun.verifier, redirect_uri: redirectUri() };
    await enter((await take(api.POST("/api/v1/login", { body }))).token);
    return begun.from.replace(/^\/console\/?/, "/");
  };
}
