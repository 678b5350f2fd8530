/** Rate limits and quotas, and their usage across all nodes: the fullest first. */
import { Anchor, Group, Progress, Stack, Text } from "@mantine/core";
import { queryOptions, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { allPages } from "@/api/all-pages";
import { api, take } from "@/api/client";
import { Loaded } from "./states";
import { ago, count, moment } from "./time";
import { BUDGET_WORDS, byFullness, type Use } from "./time-budget";
import { Untrusted } from "./untrusted";

const LOOK_MS = 30_000;
const PAGE = 1000;

export const budgetsQuery = queryOptions({
  queryKey: ["budgets"],
  queryFn: async ({ signal }) => {
    const pages = await allPages((cursor) =>
      take(api.GET("/admin/api/budgets", { params: { query: { limit: PAGE, cursor } }, signal })),
    );
    return byFullness(pages.flatMap((page) => page.budgets));
  },
  refetchInterval: LOOK_MS,
});

interface BudgetUsesProps {
  /** Only those of this key or task. */
  readonly of?: { readonly kind: Use["holder_kind"]; readonly id: string };
  readonly most?: number;
}

export function BudgetUses({ of, most }: BudgetUsesProps) {
  const query = useQuery(budgetsQuery);
  return (
    <Loaded query={query} what="Loading rate limits and quotas">
      {(found) => {
        const uses = found.filter((one) => !of || (one.holder_kind === of.kind && one.holder_id === of.id));
        return uses.length === 0 ? (
          <Text size="sm" c="dimmed">
            No rate limits or quotas.
          </Text>
        ) : (
          <Uses uses={uses.slice(0, most)} isNamed={of === undefined} />
        );
      }}
    </Loaded>
  );
}

function Uses({ uses, isNamed }: { readonly uses: readonly Use[]; readonly isNamed: boolean }) {
  return (
    <Stack
      component="ul"
      aria-label="Rate limits and quotas"
      gap="sm"
      m={0}
      p={0}
      style={{ listStyle: "none" }}
    >
      {uses.map((one) => (
        <li key={`${one.holder_kind} ${one.holder_id} ${one.budget}`}>
          <Group justify="space-between" gap="xs">
            <Text size="sm">
              {isNamed ? <Holder use={one} /> : null} {BUDGET_WORDS[one.budget]}: {count(one.used)} of{" "}
              {count(one.limit)}
            </Text>
            <Text size="sm" c="dimmed" title={moment(one.resets_at_ms)}>
              resets {ago(one.resets_at_ms)}
            </Text>
          </Group>
          <Progress
            value={Math.min(100, (100 * one.used) / one.limit)}
            color={one.used >= one.limit ? "red" : undefined}
            aria-label={`${count(one.used)} of ${count(one.limit)} used`}
          />
        </li>
      ))}
    </Stack>
  );
}

function Holder({ use }: { readonly use: Use }) {
  return (
    <Anchor
      underline="always"
      component={Link}
      to={`/${use.holder_kind}s/${encodeURIComponent(use.holder_id)}`}
    >
      {use.holder_kind} <Untrusted text={use.holder_id} mono />
    </Anchor>
  );
}
