/** The caller and what its role may do. Buttons follow it; the gateway decides. */
import { queryOptions, useQuery } from "@tanstack/react-query";
import { api, type Shapes, take } from "./client";
import { type Role, reaches } from "./role";

export { type Role, reaches } from "./role";

export const meQuery = queryOptions({
  queryKey: ["me"],
  queryFn: ({ signal }) => take(api.GET("/api/v1/me", { signal })),
  retry: false,
  staleTime: 60_000,
});

/** The caller. Only below the gate, where someone is logged in. */
export function useMe(): Shapes["MeShown"] {
  const { data } = useQuery(meQuery);
  if (data === undefined) throw new Error("no one is logged in");
  return data;
}

/** Whether the caller may do what needs `role`. */
export function useMay(role: Role): boolean {
  return reaches(useMe().role, role);
}
