/** What patterns match of all that is registered, as one types them. The gateway's own code decides. */
import { Stack, Text } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, type Shapes, take } from "@/api/client";
import { Prose } from "./prose";
import { Failure } from "./states";
import { count } from "./time";
import { Untrusted } from "./untrusted";

const PAUSE_MS = 300;
/** More tools of one pattern than this are counted, not named. */
const MOST = 12;

/** The servers that patterns apply to. Null: they are not restricted by this list. */
export interface PatternServers {
  readonly servers: readonly string[] | null;
  readonly tags: readonly string[] | null;
}

interface PatternPreviewProps {
  readonly patterns: readonly string[];
  /** Without it: all servers. */
  readonly on?: PatternServers;
  /** They deny: an effect then matches every tool that does not rule it out. */
  readonly isDeny?: boolean;
}

export function PatternPreview({ patterns, on, isDeny = false }: PatternPreviewProps) {
  const wanted = { patterns, deny: isDeny, servers: on?.servers ?? undefined, tags: on?.tags ?? undefined };
  const [text] = useDebouncedValue(JSON.stringify(wanted), PAUSE_MS);
  const settled = JSON.parse(text) as Shapes["MatchSent"];
  const query = useQuery({
    queryKey: ["derived", "match", text],
    queryFn: ({ signal }) => take(api.POST("/admin/api/match", { body: settled, signal })),
    enabled: settled.patterns.length > 0,
    placeholderData: keepPreviousData,
    retry: false,
  });
  if (patterns.length === 0) return null;
  if (query.isError) return <Failure error={query.error} />;
  return (
    <Stack gap={2} aria-live="polite">
      {query.data?.matches.map((one) => (
        <Match key={one.pattern} match={one} isSelected={Boolean(on?.servers ?? on?.tags)} />
      ))}
    </Stack>
  );
}

interface MatchProps {
  readonly match: Shapes["MatchShown"];
  /** Not all servers count. */
  readonly isSelected: boolean;
}

function Match({ match, isSelected }: MatchProps) {
  return (
    <Text size="sm" component="div" c={match.count === 0 ? undefined : "dimmed"}>
      <Untrusted text={match.pattern} mono />{" "}
      {match.error ? (
        <Text span c="var(--mantine-color-error)">
          <Prose text={match.error} />
        </Text>
      ) : (
        <Matched match={match} isSelected={isSelected} />
      )}
      <Unlisted servers={match.unlisted} />
    </Text>
  );
}

function Matched({ match, isSelected }: MatchProps) {
  if (match.count > 0)
    return (
      <>
        matches {count(match.count)}: <Untrusted text={match.tools.slice(0, MOST).join(", ")} mono />
        {match.count > MOST ? ` and ${count(match.count - MOST)} more` : null}
      </>
    );
  if (match.unlisted.length > 0) return "matches no tools yet";
  return isSelected ? "matches no tools of the selected servers" : "matches no registered tools";
}

/** Servers that may have more that matches. */
function Unlisted({ servers }: { readonly servers: readonly string[] }) {
  if (servers.length === 0) return null;
  return (
    <Text span c="var(--tone-warn)" inherit>
      {": "}
      <Untrusted text={servers.slice(0, MOST).join(", ")} mono />{" "}
      {servers.length === 1 ? "has not listed its tools" : "have not listed their tools"}
    </Text>
  );
}
