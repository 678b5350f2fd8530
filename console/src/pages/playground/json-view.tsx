/** A value of a tool's result: as tables where it is lists of objects, or as JSON. */
import { Group, SegmentedControl, Stack, Table, Text } from "@mantine/core";
import { useState } from "react";
import { CodeBlock } from "@/parts/copy";
import type { Json } from "@/parts/schema-form-model";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { type Table as Shown, tablesOf } from "./tables";

export function JsonView({ value, label }: { readonly value: Json; readonly label: string }) {
  const tables = tablesOf(value);
  const [isJson, setJson] = useState(false);
  const json = <CodeBlock text={JSON.stringify(value, null, 2)} label={label} />;
  if (tables.length === 0) return json;
  return (
    <Stack gap="xs">
      <SegmentedControl
        aria-label={`Show ${label} as`}
        value={isJson ? "json" : "table"}
        data={[
          { value: "table", label: "Table" },
          { value: "json", label: "JSON" },
        ]}
        onChange={(as) => setJson(as === "json")}
        style={{ alignSelf: "flex-start" }}
      />
      {isJson ? json : tables.map((one) => <TableShown key={one.name} table={one} />)}
    </Stack>
  );
}

function TableShown({ table }: { readonly table: Shown }) {
  const left = [
    ...(table.leftRows > 0 ? [`${count(table.leftRows)} rows`] : []),
    ...(table.leftColumns > 0 ? [`${count(table.leftColumns)} columns`] : []),
  ];
  const name = visibleText(table.name) || "Rows";
  return (
    <Stack gap={4}>
      {table.name === "" ? null : (
        <Text size="sm" fw={600} component="div">
          <Untrusted text={table.name} mono />
        </Text>
      )}
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset is for inputs */}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by keyboard */}
      <div role="group" tabIndex={0} aria-label={name} style={{ overflowX: "auto" }}>
        <Table withTableBorder withColumnBorders style={{ width: "auto", minWidth: "60%" }}>
          <Table.Thead>
            <Table.Tr>
              {table.columns.map((one) => (
                <Table.Th key={one}>
                  <Untrusted text={one} mono />
                </Table.Th>
              ))}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {table.rows.map((row, place) => (
              // biome-ignore lint/suspicious/noArrayIndexKey: a result never changes
              <Table.Tr key={place}>
                {row.map((cell, column) => (
                  <Table.Td
                    key={table.columns[column]}
                    ta={cell.isNumber ? "right" : undefined}
                    style={{ minWidth: 60, maxWidth: 420 }}
                  >
                    <Untrusted text={cell.text} />
                  </Table.Td>
                ))}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
      <Group>
        <Text size="xs" c="dimmed">
          {table.rows.length === 1 ? "1 row" : `${count(table.rows.length)} rows`}
          {left.length > 0 ? `; ${left.join(" and ")} more in JSON` : ""}
        </Text>
      </Group>
    </Stack>
  );
}
