/** Logout: drops the credential and every cached response. */
import type { QueryClient } from "@tanstack/react-query";
import { meQuery } from "./me";
import { setCredential } from "./session";

export async function leave(queries: QueryClient): Promise<void> {
  setCredential(null);
  const [me] = meQuery.queryKey;
  await queries.resetQueries({ queryKey: [me] });
  queries.removeQueries({ predicate: (one) => one.queryKey[0] !== me });
}
