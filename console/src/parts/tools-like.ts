/** The tools that a piece of text may mean, as patterns that name exactly them. */
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, take } from "@/api/client";

const PAUSE_MS = 200;

/** `server.tool`, as tools are called, as the pattern for it alone. Prompts and resources are patterns already. */
export function patternFor(name: string): string {
  return /^(prompt|resource):/.test(name) ? name : name.replace(".", "/");
}

/** Patterns for the tools whose names hold `text`; none where it is empty, or a pattern itself. */
export function useToolsLike(text: string): string[] {
  const [asked] = useDebouncedValue(text.trim(), PAUSE_MS);
  const { data } = useQuery({
    queryKey: ["derived", "match", "like", asked],
    queryFn: ({ signal }) =>
      take(api.POST("/admin/api/match", { body: { patterns: [`*${asked}*`, `*${asked}*/*`] }, signal })),
    enabled: asked !== "" && !/[*?/:]/.test(asked),
    placeholderData: keepPreviousData,
    retry: false,
  });
  const names = data?.matches.flatMap((one) => one.tools) ?? [];
  return asked === "" ? [] : [...new Set(names.map(patternFor))];
}
