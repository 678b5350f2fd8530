/** What is picked so far, and what that costs, at the foot of every page of the catalog. */
import { Button, Group, Paper, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useLocation } from "react-router";
import { count } from "@/parts/time";
import styles from "./catalog.module.css";
import { savedOf, tokensOf } from "./picks";
import { scopeQuery } from "./queries";
import { usePicks } from "./use-picks";

export function PickBar() {
  const { picks, keep } = usePicks();
  const { pathname } = useLocation();
  if (picks.size === 0 || pathname.endsWith("/picked")) return null;
  return (
    <Paper withBorder shadow="md" p="sm" className={styles.bar} component="section" aria-label="Picked tools">
      <Group justify="space-between">
        <Text size="sm" role="status">
          <b>{picks.size === 1 ? "1 tool" : `${count(picks.size)} tools`}</b> picked, about{" "}
          <Cost tokens={tokensOf(picks)} />
        </Text>
        <Group gap="xs">
          <Button variant="default" size="xs" onClick={() => keep(new Map())}>
            Clear
          </Button>
          <Button size="xs" component={Link} to="/catalog/picked">
            Use them
          </Button>
        </Group>
      </Group>
    </Paper>
  );
}

/** So many tokens, of how many, and how much less that is. */
export function Cost({ tokens }: { readonly tokens: number }) {
  const all = useQuery(scopeQuery([], "")).data?.registeredTokens ?? 0;
  const saved = savedOf(tokens, all);
  return (
    <>
      {count(tokens)}
      {saved === null ? " tokens" : ` of ${count(all)} tokens, ${saved}% less`}
    </>
  );
}
