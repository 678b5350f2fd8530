/** How everything fares, at a glance: each number leads to where it comes from. */
import { SimpleGrid, Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { serversQuery } from "@/api/records";
import { PageHead } from "@/parts/page-head";
import { Loaded } from "@/parts/states";
import { Budgets } from "./budgets";
import { Calls } from "./calls";
import { FirstSteps } from "./first-steps";
import { Nodes } from "./nodes";
import { Saved } from "./saved";
import { ServerStates } from "./server-states";
import { Tokens } from "./tokens";
import { Waiting } from "./waiting";

export default function OverviewPage() {
  const servers = useQuery(serversQuery);
  return (
    <>
      <PageHead title="Overview" about="What runs, what is called, what is denied, and what waits for you." />
      <Loaded query={servers} what="Looking at the servers">
        {(found) =>
          found.length === 0 ? (
            <FirstSteps />
          ) : (
            <Stack>
              <ServerStates servers={found} />
              <Waiting />
              <Calls />
              <Budgets />
              <Tokens />
              <SimpleGrid cols={{ base: 1, lg: 2 }}>
                <Saved />
                <Nodes />
              </SimpleGrid>
            </Stack>
          )
        }
      </Loaded>
    </>
  );
}
