/** A definition list: names and values. */
import { Group, Table, Text } from "@mantine/core";
import type { ReactNode } from "react";

interface FactProps {
  readonly name: string;
  readonly children: ReactNode;
}

/** One of a list of definitions. */
export function Fact({ name, children }: FactProps) {
  return (
    <Group gap={6} align="baseline" wrap="nowrap">
      <Text component="dt" size="sm" c="dimmed" style={{ flex: "none" }}>
        {name}
      </Text>
      <Text component="dd" size="sm" m={0}>
        {children}
      </Text>
    </Group>
  );
}

/** The fields of a record, a row each. */
export function FactTable({ children }: { readonly children: ReactNode }) {
  return (
    <Table variant="vertical" withTableBorder layout="auto" maw={820} bg="var(--mantine-color-body)">
      <Table.Tbody>{children}</Table.Tbody>
    </Table>
  );
}

export function FactRow({ name, children }: FactProps) {
  return (
    <Table.Tr>
      <Table.Th w={200}>{name}</Table.Th>
      <Table.Td>{children}</Table.Td>
    </Table.Tr>
  );
}
