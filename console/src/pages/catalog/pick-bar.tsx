/** The picks and their tokens, at the foot of every catalog page. */
import { Button, Group, Paper, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useLocation } from "react-router";
import { count } from "@/parts/time";
import styles from "./catalog.module.css";
import { type Picks, partsOf, savedOf, tokensOf, toolsOf } from "./picks";
import { scopeQuery } from "./queries";
import { usePicks } from "./use-picks";

/** Pages that show the picks themselves, or have nothing to pick. */
const WITHOUT = new Set(["/catalog/picked", "/catalog/quality"]);

export function PickBar() {
  const { picks, keep } = usePicks();
  const { pathname } = useLocation();
  if (picks.size === 0 || WITHOUT.has(pathname)) return null;
  return (
    <Paper withBorder shadow="md" p="sm" className={styles.bar} component="section" aria-label="Picked tools">
      <Group justify="space-between">
        <Text size="sm" role="status">
          <b>{spoken(picks)}</b> picked, about <Cost tokens={tokensOf(picks)} />
        </Text>
        <Group gap="xs">
          <Button variant="default" size="xs" onClick={() => keep(new Map())}>
            Clear
          </Button>
          <Button size="xs" component={Link} to="/catalog/picked">
            Use picks
          </Button>
        </Group>
      </Group>
    </Paper>
  );
}

export const toolCount = (number: number) => (number === 1 ? "1 tool" : `${count(number)} tools`);

/** `2 tools`, or `1 package and 2 tools (14 tools)`. */
export function spoken(picks: Picks): string {
  const { packages, tools } = partsOf(picks);
  if (packages.length === 0) return toolCount(tools.length);
  const whole = packages.length === 1 ? "1 package" : `${count(packages.length)} packages`;
  const single = tools.length === 0 ? "" : ` and ${toolCount(tools.length)}`;
  return `${whole}${single} (${toolCount(toolsOf(picks))})`;
}

/** Tokens of the picks, of all tools, and the saving. */
export function Cost({ tokens }: { readonly tokens: number }) {
  const all = useQuery(scopeQuery([], "")).data?.registeredTokens ?? 0;
  const saved = savedOf(tokens, all);
  return (
    <>
      {count(tokens)}
      {saved === null ? " tokens" : ` of ${count(all)} tokens, ${saved} % less`}
    </>
  );
}
