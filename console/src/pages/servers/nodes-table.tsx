/** One server on every node that reports it. */
import { Card, Table, Title } from "@mantine/core";
import { Prose } from "@/parts/prose";
import { StateBadge } from "@/parts/server-state";
import { ago, count, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import type { Server } from "./server-form";

export function Nodes({ nodes }: { readonly nodes: Server["nodes"] }) {
  return (
    <Card withBorder>
      <Title order={2} size="h5" mb="sm">
        Status by node
      </Title>
      <Table.ScrollContainer minWidth={480} scrollAreaProps={{ viewportProps: { tabIndex: 0 } }}>
        <Table>
          <Table.Thead>
            <Table.Tr>
              <Table.Th>Node</Table.Th>
              <Table.Th>State</Table.Th>
              <Table.Th>Since</Table.Th>
              <Table.Th>Tools</Table.Th>
              <Table.Th>Restarts</Table.Th>
              <Table.Th>Last error</Table.Th>
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {nodes.map((node) => (
              <Table.Tr key={node.node_id}>
                <Table.Td>
                  <Untrusted text={node.node_id} mono />
                </Table.Td>
                <Table.Td>
                  <StateBadge state={node.state} />
                </Table.Td>
                <Table.Td title={moment(node.since_ms)}>{ago(node.since_ms)}</Table.Td>
                <Table.Td>{count(node.tools)}</Table.Td>
                <Table.Td>{count(node.restarts)}</Table.Td>
                <Table.Td>
                  <Prose text={node.last_error} />
                </Table.Td>
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </Table.ScrollContainer>
    </Card>
  );
}
