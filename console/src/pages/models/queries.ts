/** What the pages of chat upstreams ask for. */
import { queryOptions } from "@tanstack/react-query";
import { allPages } from "@/api/all-pages";
import { api, take, takeTagged } from "@/api/client";

export const upstreamsQuery = queryOptions({
  queryKey: ["chat_upstream", "all"],
  queryFn: async ({ signal }) => {
    const pages = await allPages((cursor) =>
      take(api.GET("/admin/api/chat-upstreams", { params: { query: { limit: 1000, cursor } }, signal })),
    );
    return pages.flatMap((page) => page.chat_upstreams);
  },
});

export function upstreamQuery(id: string) {
  return queryOptions({
    queryKey: ["chat_upstream", id],
    queryFn: ({ signal }) =>
      takeTagged(
        api.GET("/admin/api/chat-upstreams/{upstream_id}", {
          params: { path: { upstream_id: id } },
          signal,
        }),
      ),
  });
}
