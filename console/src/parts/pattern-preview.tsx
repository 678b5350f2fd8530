/** What patterns match of all that is registered, as one types them. The gateway's own code decides. */
import { Stack, Text } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, type Shapes, take } from "@/api/client";
import { Failure } from "./states";
import { count } from "./time";
import { Untrusted } from "./untrusted";

const PAUSE_MS = 300;
/** More tools of one pattern than this are counted, not named. */
const MOST = 12;

interface PatternPreviewProps {
  readonly patterns: readonly string[];
  /** They deny: an effect then matches every tool that does not rule it out. */
  readonly isDeny?: boolean;
}

export function PatternPreview({ patterns, isDeny = false }: PatternPreviewProps) {
  const [text] = useDebouncedValue(JSON.stringify(patterns), PAUSE_MS);
  const settled = JSON.parse(text) as string[];
  const query = useQuery({
    queryKey: ["derived", "match", isDeny, text],
    queryFn: ({ signal }) =>
      take(api.POST("/admin/api/match", { body: { patterns: settled, deny: isDeny }, signal })),
    enabled: settled.length > 0,
    placeholderData: keepPreviousData,
    retry: false,
  });
  if (patterns.length === 0) return null;
  if (query.isError) return <Failure error={query.error} />;
  return (
    <Stack gap={2} aria-live="polite">
      {query.data?.matches.map((one) => (
        <Match key={one.pattern} match={one} />
      ))}
    </Stack>
  );
}

function Match({ match }: { readonly match: Shapes["MatchShown"] }) {
  const isNothing = match.count === 0;
  return (
    <Text size="sm" component="div" c={isNothing ? undefined : "dimmed"}>
      <Untrusted text={match.pattern} mono />{" "}
      {match.error ? (
        <Text span c="var(--mantine-color-error)">
          <Untrusted text={match.error} />
        </Text>
      ) : isNothing ? (
        "matches no registered tools"
      ) : (
        <>
          matches {count(match.count)}: <Untrusted text={match.tools.slice(0, MOST).join(", ")} mono />
          {match.count > MOST ? ` and ${count(match.count - MOST)} more` : null}
        </>
      )}
    </Text>
  );
}
