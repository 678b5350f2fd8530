/** The tools that a piece of text may mean, as patterns that name exactly them. */
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, take } from "@/api/client";

const PAUSE_MS = 200;

/** What chooses tools by the annotations of their definitions. */
const EFFECTS = ["@read_only", "@destructive", "@idempotent", "@open_world"];

/** `server.tool`, as tools are called, as the pattern for it alone. Prompts and resources are patterns already. */
export function patternFor(name: string): string {
  return /^(prompt|resource):/.test(name) ? name : name.replace(".", "/");
}

/** Patterns for the tools whose names hold `text`; none where it is empty, or a pattern itself. After `@`: the effects. */
export function useToolsLike(text: string): string[] {
  const [asked] = useDebouncedValue(text.trim(), PAUSE_MS);
  const { data } = useQuery({
    queryKey: ["derived", "match", "like", asked],
    queryFn: ({ signal }) =>
      take(
        api.POST("/admin/api/match", {
          body: { patterns: [`*${asked}*`, `*${asked}*/*`], deny: false },
          signal,
        }),
      ),
    enabled: asked !== "" && !/[*?/:@]/.test(asked),
    placeholderData: keepPreviousData,
    retry: false,
  });
  if (asked.startsWith("@")) return EFFECTS.filter((one) => one.startsWith(asked));
  const names = data?.matches.flatMap((one) => one.tools) ?? [];
  return asked === "" ? [] : [...new Set(names.map(patternFor))];
}
