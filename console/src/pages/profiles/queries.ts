/** One profile, with the tag to change it by. */
import { queryOptions } from "@tanstack/react-query";
import { api, takeTagged } from "@/api/client";

export const profileQuery = (id: string) =>
  queryOptions({
    queryKey: ["profile", id],
    queryFn: ({ signal }) =>
      takeTagged(
        api.GET("/admin/api/profiles/{profile_id}", { params: { path: { profile_id: id } }, signal }),
      ),
  });
