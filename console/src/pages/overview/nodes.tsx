/** The nodes, and the revision of the registry that each serves. */
import { Badge, Stack, Table, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { Shapes } from "@/api/client";
import { useMe } from "@/api/me";
import { nodesQuery } from "@/api/records";
import { Loaded } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { Panel } from "./panel";

type Node = Shapes["NodeShown"];

function standing(node: Node): { word: string; colour: string } {
  if (node.is_lost) return { word: "lost", colour: "red" };
  if (node.is_degraded) return { word: "degraded", colour: "orange" };
  return node.is_current ? { word: "current", colour: "green" } : { word: "behind", colour: "yellow" };
}

export function Nodes() {
  const me = useMe();
  const nodes = useQuery(nodesQuery);
  return (
    <Panel title="Nodes">
      <Loaded query={nodes} what="Loading the nodes">
        {(found) => (
          <Stack gap="xs">
            <Text size="sm" c="dimmed">
              {me.calls_tools
                ? `This process is control plane and node, at registry revision ${found.revision}.`
                : `Registry revision ${found.revision}.`}
            </Text>
            {found.nodes.length === 0 && !me.calls_tools ? (
              <Text>
                No node has reported. Start one with <span className="mono">toolgate node</span>.
              </Text>
            ) : null}
            <Table aria-label="Nodes">
              <Table.Tbody>
                {found.nodes.map((node) => (
                  <Table.Tr key={node.node_id}>
                    <Table.Td>
                      <Untrusted text={node.node_id} mono />
                    </Table.Td>
                    <Table.Td>
                      <Badge color={standing(node).colour} variant="light" tt="none">
                        {standing(node).word}
                      </Badge>
                    </Table.Td>
                    <Table.Td>revision {node.revision}</Table.Td>
                    <Table.Td>{node.servers} servers</Table.Td>
                    <Table.Td c="dimmed">{Math.round(node.age_s)} s ago</Table.Td>
                  </Table.Tr>
                ))}
              </Table.Tbody>
            </Table>
          </Stack>
        )}
      </Loaded>
    </Panel>
  );
}
