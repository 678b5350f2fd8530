/** What a search found, the best first; more comes as one scrolls. */
import { Button, Center, Stack, Text } from "@mantine/core";
import { useIntersection } from "@mantine/hooks";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { Empty, Failure, Skeletons } from "@/parts/states";
import { count } from "@/parts/time";
import type { Filters } from "./filters";
import { searchQuery } from "./queries";
import { ToolRow } from "./tool-row";

export function Results({ filters }: { readonly filters: Filters }) {
  const query = useInfiniteQuery(searchQuery(filters));
  const { ref, entry } = useIntersection({ rootMargin: "400px" });
  const { hasNextPage, isFetchingNextPage, fetchNextPage } = query;
  const isNear = entry?.isIntersecting ?? false;
  useEffect(() => {
    if (isNear && hasNextPage && !isFetchingNextPage) void fetchNextPage();
  }, [isNear, hasNextPage, isFetchingNextPage, fetchNextPage]);
  if (query.isError) return <Failure error={query.error} onRetry={() => void query.refetch()} />;
  if (query.data === undefined) return <Skeletons what="Searching" />;
  const found = query.data.pages.flatMap((page) => page.tools);
  const total = query.data.pages[0]?.total ?? 0;
  if (found.length === 0) return <Empty title="No tools match">Try other words, or clear a filter.</Empty>;
  return (
    <Stack gap="xs" mt="md" component="section" aria-label="Found">
      <Text size="sm" c="dimmed" role="status">
        {total === 1 ? "1 tool" : `${count(total)} tools`}
        {query.isPlaceholderData ? ", searching again…" : ""}
      </Text>
      {found.map((one) => (
        <ToolRow key={one.fullName} tool={one} server={{ id: one.serverId, name: one.serverName }} />
      ))}
      {hasNextPage ? (
        <Center ref={ref} p="sm">
          <Button variant="default" loading={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            Show more
          </Button>
        </Center>
      ) : null}
    </Stack>
  );
}
