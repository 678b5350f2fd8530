/** All tasks or keys with their unused grants; and unused servers. */
import { Button, SegmentedControl, Stack, Text } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { type Column, DataTable } from "@/parts/data-table";
import { ClearFilters, FilterRow, useFilters } from "@/parts/filter-row";
import { hasWords } from "@/parts/filter-words";
import { knownSince, LastUsed } from "@/parts/last-used";
import { PageHead } from "@/parts/page-head";
import { Warnings } from "@/parts/plan-panel";
import { Empty, Failure, Skeletons } from "@/parts/states";
import { count, moment } from "@/parts/time";
import { type Range, type TimeRange, TimeRangePicker, useTimeRange } from "@/parts/time-range";
import { Untrusted } from "@/parts/untrusted";
import { useAllPages } from "@/parts/use-all-pages";
import { askedFor, type Holder, holderPath, LOOKED, type Looked, SPANS, USUAL } from "./words";

/** Each comes with up to a hundred names. */
const PAGE = 25;

type IdleServer = Shapes["IdleServerShown"];

function useUnused(kind: Holder["kind"], { range, ms }: Pick<TimeRange, "range" | "ms">) {
  return useInfiniteQuery({
    queryKey: ["derived", "unused", kind, range],
    queryFn: ({ pageParam, signal }) => {
      const query = { kind, since: Date.now() - ms, limit: PAGE, cursor: pageParam };
      return take(api.GET("/admin/api/unused", { params: { query }, signal }));
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });
}

export function UnusedList() {
  const { of, set, text } = useFilters();
  const time = useTimeRange(USUAL, SPANS);
  const looked = askedFor(of("of"));
  const found = useUnused(looked === "key" ? "key" : "task", time);
  const pages = found.data?.pages ?? [];
  useAllPages(found, pages.length, text !== "" && looked !== "server");
  const [first] = pages;
  return (
    <>
      <PageHead
        title="Unused grants"
        about="Tools and servers that are granted but not used. This page changes nothing."
      />
      <FilterRow find="Find by name">
        <SegmentedControl
          size="xs"
          aria-label="Grants of"
          value={looked}
          onChange={(next) => set({ of: next === "task" ? "" : next })}
          data={[...LOOKED]}
        />
        <TimeRangePicker time={time} />
        {first ? (
          <Text size="sm">Not used since {moment(knownSince(first.since_ms, first.audit_begins_ms))}</Text>
        ) : null}
      </FilterRow>
      <Stack gap="sm">
        <Warnings warnings={first?.warnings ?? []} />
        {found.isError ? <Failure error={found.error} onRetry={() => void found.refetch()} /> : null}
        {first === undefined && !found.isError ? <Skeletons what="Reading the audit log" /> : null}
        {first === undefined ? null : (
          <Found
            looked={looked}
            range={time.range}
            holders={pages.flatMap((page) => page.holders)}
            servers={first.servers}
            beginsMs={first.audit_begins_ms}
            text={text}
          />
        )}
        {found.hasNextPage && looked !== "server" ? (
          <Button
            variant="default"
            onClick={() => void found.fetchNextPage()}
            loading={found.isFetchingNextPage}
            style={{ alignSelf: "flex-start" }}
          >
            Show more
          </Button>
        ) : null}
      </Stack>
    </>
  );
}

interface FoundProps {
  readonly looked: Looked;
  readonly range: Range;
  readonly holders: readonly Holder[];
  readonly servers: readonly IdleServer[];
  readonly beginsMs: number | null;
  /** Looked for in their names. */
  readonly text: string;
}

function Found({ looked, range, holders, servers, beginsMs, text }: FoundProps) {
  const noMatch = <Empty title="Nothing matches" firstStep={<ClearFilters names={[]} />} />;
  if (looked === "server")
    return (
      <DataTable
        key="server"
        label="Unused servers"
        rows={servers.filter((one) => hasWords(text, one.server_id))}
        columns={serverColumns(beginsMs)}
        keyOf={(one) => one.server_id}
        hrefOf={(one) => `/servers/${encodeURIComponent(one.server_id)}`}
        sort={{ key: "id" }}
        empty={
          servers.length > 0 ? (
            noMatch
          ) : (
            <Empty title="No unused servers">Every server was used in this time range.</Empty>
          )
        }
      />
    );
  return (
    <DataTable
      key={looked}
      label={looked === "task" ? "Tasks" : "Keys"}
      rows={holders.filter((one) => hasWords(text, one.id))}
      columns={holderColumns(looked === "task" ? "Task" : "Key", beginsMs)}
      keyOf={(one) => `${one.kind}/${one.id}`}
      hrefOf={(one) => holderPath(one, range)}
      sort={{ key: "unused", isDown: true }}
      empty={holders.length > 0 ? noMatch : <Nothing of={looked} />}
    />
  );
}

function Nothing({ of }: { readonly of: "task" | "key" }) {
  return of === "task" ? (
    <Empty
      title="No tasks yet"
      firstStep={
        <Button component={Link} to="/unused?of=key" variant="default">
          Look at keys
        </Button>
      }
    >
      Without a task, callers see all tools that their key allows.
    </Empty>
  ) : (
    <Empty title="No keys yet">Without keys, only local callers reach the gateway.</Empty>
  );
}

function holderColumns(title: string, beginsMs: number | null): readonly Column<Holder>[] {
  return [
    { key: "id", title, sortBy: (one) => one.id, show: (one) => <Untrusted text={one.id} mono /> },
    {
      key: "unused",
      title: "Unused",
      align: "right",
      width: 140,
      sortBy: (one) => one.unused,
      show: (one) => `${count(one.unused)} of ${count(one.granted)}`,
    },
    {
      key: "tokens",
      title: "Unused tokens",
      align: "right",
      width: 140,
      isMinor: true,
      sortBy: (one) => one.unused_tokens,
      show: (one) => count(one.unused_tokens),
    },
    {
      key: "calls",
      title: "Calls",
      align: "right",
      width: 100,
      isMinor: true,
      sortBy: (one) => one.calls,
      show: (one) => count(one.calls),
    },
    {
      key: "last",
      title: "Last used",
      width: 190,
      sortBy: (one) => one.last_used_ms ?? 0,
      show: (one) => <LastUsed ms={one.last_used_ms} beginsMs={beginsMs} />,
    },
  ];
}

function serverColumns(beginsMs: number | null): readonly Column<IdleServer>[] {
  return [
    {
      key: "id",
      title: "Server",
      sortBy: (one) => one.server_id,
      show: (one) => <Untrusted text={one.server_id} mono />,
    },
    {
      key: "last",
      title: "Last used",
      width: 190,
      sortBy: (one) => one.last_used_ms ?? 0,
      show: (one) => <LastUsed ms={one.last_used_ms} beginsMs={beginsMs} />,
    },
  ];
}
