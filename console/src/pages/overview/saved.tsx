/** The tokens each task saves: definitions that its models do not see. */
import { Anchor, Progress, Stack, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { overviewQuery } from "../tasks/queries";
import { savings } from "./numbers";
import { Panel } from "./panel";

const MOST = 8;

export function Saved() {
  const overview = useQuery(overviewQuery);
  return (
    <Panel title="Tokens saved">
      <Loaded query={overview} what="Counting tokens">
        {(found) => {
          const all = savings(found);
          return (
            <Stack gap="xs">
              <Text size="sm" c="dimmed">
                All {count(found.registered_tools)} tools cost a model about {count(found.registered_tokens)}{" "}
                tokens per request.
              </Text>
              {all.length === 0 ? (
                <Text>
                  A task lists only the tools it needs.{" "}
                  <Anchor component={Link} to="/tasks">
                    Create a task
                  </Anchor>
                  .
                </Text>
              ) : null}
              <Table aria-label="Tokens saved by task">
                <Table.Tbody>
                  {all.slice(0, MOST).map((one) => (
                    <Table.Tr key={one.taskId}>
                      <Table.Td>
                        <Anchor component={Link} to={`/tasks/${encodeURIComponent(one.taskId)}`}>
                          <Untrusted text={one.taskId} />
                        </Anchor>
                      </Table.Td>
                      <Table.Td>
                        {one.tools} tools, {count(one.tokens)} tokens
                      </Table.Td>
                      <Table.Td w="30%">
                        <Progress value={one.percent} aria-label={`${one.percent} % saved`} />
                      </Table.Td>
                      <Table.Td ta="right">{one.percent} %</Table.Td>
                    </Table.Tr>
                  ))}
                </Table.Tbody>
              </Table>
            </Stack>
          );
        }}
      </Loaded>
    </Panel>
  );
}
