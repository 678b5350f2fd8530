/** A table of any length: sorted by its heads, of which only the rows in sight are made. */
import { Box, Table, Text } from "@mantine/core";
import { IconChevronDown, IconChevronUp, IconSelector } from "@tabler/icons-react";
import { useVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useMemo, useRef, useState } from "react";

export interface Column<Row> {
  readonly key: string;
  readonly title: string;
  readonly show: (row: Row) => ReactNode;
  /** What rows are sorted by. Without it the column cannot be. */
  readonly sortBy?: (row: Row) => string | number;
  readonly width?: number | string;
  /** Left out on narrow screens. */
  readonly isMinor?: boolean;
  readonly align?: "left" | "right";
}

interface DataTableProps<Row> {
  readonly label: string;
  readonly rows: readonly Row[];
  readonly columns: readonly Column<Row>[];
  readonly keyOf: (row: Row) => string;
  readonly onOpen?: (row: Row) => void;
  /** The column sorted by at first, and whether from the top down. */
  readonly sort?: { readonly key: string; readonly isDown?: boolean };
  readonly height?: number | string;
  /** Shown if there are no rows. */
  readonly empty?: ReactNode;
}

/** Below this many, all rows are rendered, so that the browser's search finds them. */
const ALL_UP_TO = 100;
const ROW_PX = 44;

interface Order {
  readonly key: string;
  readonly isDown: boolean;
}

function compare(a: string | number, b: string | number): number {
  return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
}

function useSorted<Row>({ rows, columns, sort }: DataTableProps<Row>) {
  const [order, setOrder] = useState<Order | null>(
    sort ? { key: sort.key, isDown: sort.isDown ?? false } : null,
  );
  const by = columns.find((one) => one.key === order?.key)?.sortBy;
  const sorted = useMemo(() => {
    if (by === undefined || order === null) return rows;
    const sign = order.isDown ? -1 : 1;
    return [...rows].sort((a, b) => sign * compare(by(a), by(b)));
  }, [rows, by, order]);
  const turn = (key: string) => setOrder({ key, isDown: order?.key === key && !order.isDown });
  return { sorted, order, turn };
}

function Head<Row>({
  column,
  order,
  turn,
}: {
  column: Column<Row>;
  order: Order | null;
  turn: (key: string) => void;
}) {
  const isSorted = order?.key === column.key;
  const Icon = !isSorted ? IconSelector : order.isDown ? IconChevronDown : IconChevronUp;
  const direction = isSorted ? (order.isDown ? "descending" : "ascending") : "none";
  return (
    <Table.Th
      w={column.width}
      ta={column.align}
      className={column.isMinor ? "mantine-visible-from-md" : undefined}
      aria-sort={column.sortBy ? direction : undefined}
    >
      {column.sortBy ? (
        <button type="button" onClick={() => turn(column.key)}>
          {column.title}
          <Icon size={14} aria-hidden />
        </button>
      ) : (
        column.title
      )}
    </Table.Th>
  );
}

export function DataTable<Row>(props: DataTableProps<Row>) {
  const { label, columns, keyOf, onOpen, height = "calc(100vh - 260px)", empty } = props;
  const { sorted, order, turn } = useSorted(props);
  const frame = useRef<HTMLDivElement>(null);
  const isWhole = sorted.length <= ALL_UP_TO;
  const window = useVirtualizer({
    count: sorted.length,
    getScrollElement: () => frame.current,
    estimateSize: () => ROW_PX,
    overscan: 12,
    enabled: !isWhole,
  });
  const shown = isWhole ? null : window.getVirtualItems();
  const rows = shown ? shown.map((item) => sorted[item.index] as Row) : sorted;
  const before = shown?.[0]?.start ?? 0;
  const after = shown ? window.getTotalSize() - (shown.at(-1)?.end ?? 0) : 0;
  if (sorted.length === 0 && empty) return empty;
  return (
    <Box
      ref={frame}
      component="section"
      aria-label={label}
      tabIndex={0}
      style={{ overflow: "auto", maxHeight: height }}
    >
      <Table className="data-table" highlightOnHover={onOpen !== undefined} aria-rowcount={sorted.length + 1}>
        <Table.Thead>
          <Table.Tr>
            {columns.map((column) => (
              <Head key={column.key} column={column} order={order} turn={turn} />
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          <Gap height={before} />
          {rows.map((row) => (
            <Row key={keyOf(row)} row={row} columns={columns} onOpen={onOpen} />
          ))}
          <Gap height={after} />
        </Table.Tbody>
      </Table>
      <Text size="xs" c="dimmed" p="xs" role="status">
        {sorted.length === 1 ? "1 row" : `${sorted.length.toLocaleString("en")} rows`}
      </Text>
    </Box>
  );
}

function Gap({ height }: { readonly height: number }) {
  return height > 0 ? <tr aria-hidden style={{ height }} /> : null;
}

function Row<Row>({
  row,
  columns,
  onOpen,
}: {
  row: Row;
  columns: readonly Column<Row>[];
  onOpen?: (row: Row) => void;
}) {
  const opening = onOpen && {
    tabIndex: 0,
    onClick: () => onOpen(row),
    onKeyDown: (event: React.KeyboardEvent) => {
      if (event.key === "Enter" && event.target === event.currentTarget) onOpen(row);
    },
  };
  return (
    <Table.Tr h={ROW_PX} {...opening}>
      {columns.map((column) => (
        <Table.Td
          key={column.key}
          ta={column.align}
          className={column.isMinor ? "mantine-visible-from-md" : undefined}
        >
          {column.show(row)}
        </Table.Td>
      ))}
    </Table.Tr>
  );
}
