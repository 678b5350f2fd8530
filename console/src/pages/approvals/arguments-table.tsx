/** The arguments of a call, a row each: texts as texts, everything else as JSON. */
import { Table, Text } from "@mantine/core";
import { Untrusted } from "@/parts/untrusted";
import type { Approval } from "./states";

export function ArgumentsTable({ values }: { readonly values: Approval["arguments"] }) {
  const names = Object.keys(values);
  if (names.length === 0) return <Text size="sm">The call has no arguments.</Text>;
  return (
    <Table variant="vertical" layout="auto" withTableBorder aria-label="Arguments">
      <Table.Tbody>
        {names.map((name) => (
          <Table.Tr key={name} style={{ verticalAlign: "top" }}>
            <Table.Th w={{ base: 96, sm: 160 }}>
              <Untrusted text={name} mono />
            </Table.Th>
            <Table.Td>
              <Untrusted text={shown(values[name])} mono />
            </Table.Td>
          </Table.Tr>
        ))}
      </Table.Tbody>
    </Table>
  );
}

function shown(value: unknown): string {
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}
