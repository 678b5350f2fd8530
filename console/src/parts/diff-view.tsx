/** Differences: of a record field by field, and of texts line by line. */
import { Stack, Table, Text } from "@mantine/core";
import type { Shapes } from "@/api/client";
import { listDifference } from "./list-difference";
import { Untrusted } from "./untrusted";

function text(value: unknown): string {
  if (value === undefined || value === null) return "–";
  return typeof value === "string" ? value : JSON.stringify(value, null, 2);
}

/** Both sides of a field. Of long lists, only what differs. */
function sides({ before, after }: Shapes["FieldDiff"]): { before: string; after: string } {
  const lists = listDifference(before, after);
  if (lists === null) return { before: text(before), after: text(after) };
  const same = lists.same > 0 ? [`(and ${lists.same} unchanged)`] : [];
  const said = (entries: readonly string[]) => [...entries, ...same].join("\n") || "–";
  return { before: said(lists.removed), after: said(lists.added) };
}

export function FieldDiff({ fields }: { readonly fields: readonly Shapes["FieldDiff"][] }) {
  if (fields.length === 0) return <Text c="dimmed">No differences.</Text>;
  return (
    <Table.ScrollContainer minWidth={360} scrollAreaProps={{ viewportProps: { tabIndex: 0 } }}>
      <Table withTableBorder>
        <Table.Thead>
          <Table.Tr>
            <Table.Th>Field</Table.Th>
            <Table.Th>Before</Table.Th>
            <Table.Th>After</Table.Th>
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {fields.map((one) => (
            <FieldRow key={one.field} field={one} />
          ))}
        </Table.Tbody>
      </Table>
    </Table.ScrollContainer>
  );
}

function FieldRow({ field }: { readonly field: Shapes["FieldDiff"] }) {
  const { before, after } = sides(field);
  return (
    <Table.Tr style={{ verticalAlign: "top" }}>
      <Table.Td miw={120}>
        <Untrusted text={field.field} mono />
      </Table.Td>
      <Table.Td bg="var(--tone-removed)">
        <Untrusted text={before} mono />
      </Table.Td>
      <Table.Td bg="var(--tone-added)">
        <Untrusted text={after} mono />
      </Table.Td>
    </Table.Tr>
  );
}

function lineClass(line: string): string {
  if (line.startsWith("+")) return "added";
  if (line.startsWith("-")) return "removed";
  return "same";
}

/** A unified diff. */
export function LineDiff({ lines }: { readonly lines: readonly string[] }) {
  return (
    <Stack gap={0}>
      <pre className="diff">
        {lines.map((line, place) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: lines of one diff never move
          <span key={place} className={lineClass(line)}>
            <Untrusted text={line} />
          </span>
        ))}
      </pre>
    </Stack>
  );
}
