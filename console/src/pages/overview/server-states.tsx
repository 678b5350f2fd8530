/** Servers by state: each number leads to those servers. */
import { Group, Paper, SimpleGrid, Text } from "@mantine/core";
import { Link } from "react-router";
import type { Shapes } from "@/api/client";
import { NOT_KNOWN, StateBadge } from "@/parts/server-state";
import { count } from "@/parts/time";
import { byState } from "./numbers";

export function ServerStates({ servers }: { readonly servers: readonly Shapes["ServerShown"][] }) {
  return (
    <SimpleGrid cols={{ base: 2, sm: 3, lg: 6 }} component="section" aria-label="Servers by state">
      {byState(servers).map(([state, many]) => (
        <Paper
          key={state ?? NOT_KNOWN}
          withBorder
          p="sm"
          component={Link}
          to={`/servers?state=${encodeURIComponent(state ?? NOT_KNOWN)}`}
          td="none"
          c="inherit"
        >
          <Group justify="space-between">
            <Text size="xl" fw={700}>
              {count(many)}
            </Text>
            <StateBadge state={state} />
          </Group>
        </Paper>
      ))}
    </SimpleGrid>
  );
}
