/** One profile, with the tag to change it by; and what became of the calls under each of its versions. */
import { queryOptions } from "@tanstack/react-query";
import { api, take, takeTagged } from "@/api/client";

export const profileQuery = (id: string) =>
  queryOptions({
    queryKey: ["profile", id],
    queryFn: ({ signal }) =>
      takeTagged(
        api.GET("/admin/api/profiles/{profile_id}", { params: { path: { profile_id: id } }, signal }),
      ),
  });

export const versionsQuery = (id: string) =>
  queryOptions({
    queryKey: ["derived", "versions", id],
    queryFn: ({ signal }) =>
      take(
        api.GET("/admin/api/profiles/{profile_id}/versions", {
          params: { path: { profile_id: id } },
          signal,
        }),
      ),
    retry: false,
  });
