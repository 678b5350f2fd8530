/** Logout: drops the credential and every cached response. */
import type { QueryClient } from "@tanstack/react-query";
import { meQuery } from "./me";
import { setCredential } from "./session";

/** The first part of the query key of what the login page needs. */
export const LOGIN_KEY = "login";

export async function leave(queries: QueryClient): Promise<void> {
  setCredential(null);
  const [me] = meQuery.queryKey;
  await queries.resetQueries({ queryKey: [me] });
  // But for what the login page, which is there by now, is waiting for.
  const kept = [me, LOGIN_KEY];
  queries.removeQueries({ predicate: ({ queryKey: [first] }) => !kept.some((one) => one === first) });
}
