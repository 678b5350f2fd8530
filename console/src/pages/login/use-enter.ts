/** The way in, by whatever proves who one is. */
import { useQueryClient } from "@tanstack/react-query";
import { api, type Shapes, take } from "@/api/client";
import { leave } from "@/api/leave";
import { meQuery, reaches } from "@/api/me";
import { setCredential } from "@/api/session";
import { redirectUri, takeBegun } from "./pkce";

/** Lets in whom `token` proves. It is tried before it is kept, and beside the gate: that would close on this page while
 *  it asks. */
export function useEnter() {
  const queries = useQueryClient();
  return async (token: string) => {
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

/** Whether somebody may go on with the page of somebody else: one sees all of it already. */
function mayGoOn(me: Shapes["MeShown"], before: Shapes["MeShown"]): boolean {
  const seesAll = reaches(before.role, "viewer") && reaches(me.role, before.role);
  return me.principal === before.principal || seesAll;
}

/** Hands in what an issuer answered to the login that was begun in this tab. Returns the page to go on with. */
export function useFinish() {
  const enter = useEnter();
  return async (answer: URLSearchParams): Promise<string> => {
    const begun = takeBegun(answer);
    if (begun === null) throw new Error("This login was not begun in this tab. Begin again.");
    const code = answer.get("code");
    if (code === null)
      throw new Error(answer.get("error_description") ?? answer.get("error") ?? "The login was refused.");
    const body = { code, code_verifier: begun.verifier, redirect_uri: redirectUri() };
    await enter((await take(api.POST("/api/v1/login", { body }))).token);
    return begun.from.replace(/^\/console\/?/, "/");
  };
}
