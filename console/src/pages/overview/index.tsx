/** Status at a glance: each number links to its source. */
import { SimpleGrid, Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { serversQuery } from "@/api/records";
import { PageHead } from "@/parts/page-head";
import { Loaded } from "@/parts/states";
import { Budgets } from "./budgets";
import { Calls } from "./calls";
import { FirstSteps } from "./first-steps";
import { Inbox } from "./inbox";
import { Nodes } from "./nodes";
import { Saved } from "./saved";
import { ServerStates } from "./server-states";
import { Tokens } from "./tokens";

export default function OverviewPage() {
  const servers = useQuery(serversQuery);
  return (
    <>
      <PageHead title="Overview" about="What needs you, and what the gateway does." />
      <Loaded query={servers} what="Loading the servers">
        {(found) =>
          found.length === 0 ? (
            <FirstSteps />
          ) : (
            <Stack>
              <Inbox />
              <ServerStates servers={found} />
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
