/** A table of any length: sorted by its heads, of which only the rows in sight are made. The page scrolls, not the table. */
import { Box, Table, Text } from "@mantine/core";
import { IconChevronDown, IconChevronUp, IconSelector } from "@tabler/icons-react";
import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { type ReactNode, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Link } from "react-router";

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
  /** Where a row leads to: its first cell becomes a link that covers the row. */
  readonly hrefOf?: (row: Row) => string;
  /** What a row opens on this page: its first cell becomes a button that covers the row. */
  readonly onOpen?: (row: Row) => void;
  /** The column sorted by at first, and whether from the top down. */
  readonly sort?: { readonly key: string; readonly isDown?: boolean };
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

/** The rows in sight, and the height of those before and after. */
function useWindow<Row>(sorted: readonly Row[]) {
  const frame = useRef<HTMLDivElement>(null);
  const [top, setTop] = useState(0);
  useLayoutEffect(() => {
    if (frame.current) setTop(frame.current.getBoundingClientRect().top + window.scrollY);
  }, []);
  const isWhole = sorted.length <= ALL_UP_TO;
  const virtual = useWindowVirtualizer({
    count: sorted.length,
    estimateSize: () => ROW_PX,
    overscan: 12,
    scrollMargin: top,
    enabled: !isWhole,
  });
  if (isWhole) return { frame, rows: sorted, first: 0, before: 0, after: 0, measure: undefined };
  const shown = virtual.getVirtualItems();
  return {
    frame,
    rows: shown.map((item) => sorted[item.index] as Row),
    first: shown[0]?.index ?? 0,
    before: Math.max(0, (shown[0]?.start ?? top) - top),
    after: Math.max(0, virtual.getTotalSize() - ((shown.at(-1)?.end ?? top) - top)),
    /** Rows differ in height: each is measured when it is shown. */
    measure: virtual.measureElement,
  };
}

export function DataTable<Row>(props: DataTableProps<Row>) {
  const { label, columns, keyOf, hrefOf, onOpen, empty } = props;
  const { sorted, order, turn } = useSorted(props);
  const { frame, rows, first, before, after, measure } = useWindow(sorted);
  if (sorted.length === 0 && empty) return empty;
  return (
    <Box ref={frame} component="section" aria-label={label}>
      <Table
        className="data-table"
        withTableBorder
        highlightOnHover={hrefOf !== undefined || onOpen !== undefined}
        aria-rowcount={sorted.length + 1}
      >
        <Table.Thead>
          <Table.Tr>
            {columns.map((column) => (
              <Head key={column.key} column={column} order={order} turn={turn} />
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          <Gap height={before} />
          {rows.map((row, place) => (
            <Row
              key={keyOf(row)}
              row={row}
              columns={columns}
              to={hrefOf?.(row)}
              onOpen={onOpen}
              place={first + place}
              measure={measure}
            />
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

interface RowProps<Row> {
  readonly row: Row;
  readonly columns: readonly Column<Row>[];
  readonly to: string | undefined;
  readonly onOpen: ((row: Row) => void) | undefined;
  /** Its place among all rows, and what measures it. */
  readonly place: number;
  readonly measure: ((row: HTMLTableRowElement | null) => void) | undefined;
}

function Row<Row>({ row, columns, to, onOpen, place: index, measure }: RowProps<Row>) {
  return (
    <Table.Tr h={ROW_PX} ref={measure} data-index={index}>
      {columns.map((column, place) => (
        <Table.Td
          key={column.key}
          ta={column.align}
          // Numbers keep their unit next to them.
          style={column.align === "right" ? { whiteSpace: "nowrap" } : undefined}
          className={column.isMinor ? "mantine-visible-from-md" : undefined}
        >
          {place === 0 ? (
            <Opening row={row} to={to} onOpen={onOpen}>
              {column.show(row)}
            </Opening>
          ) : (
            column.show(row)
          )}
        </Table.Td>
      ))}
    </Table.Tr>
  );
}

function Opening<Row>({
  row,
  to,
  onOpen,
  children,
}: Pick<RowProps<Row>, "row" | "to" | "onOpen"> & { readonly children: ReactNode }) {
  if (to !== undefined)
    return (
      <Link to={to} className="row-link">
        {children}
      </Link>
    );
  if (onOpen !== undefined)
    return (
      <button type="button" className="row-link" onClick={() => onOpen(row)}>
        {children}
      </button>
    );
  return children;
}
