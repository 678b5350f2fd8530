/** All tasks or keys with their unused grants; and unused servers. */
import { Button, Group, SegmentedControl, Stack, Text } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { type Column, DataTable } from "@/parts/data-table";
import { PageHead } from "@/parts/page-head";
import { Warnings } from "@/parts/plan-panel";
import { Span, useDays } from "@/parts/span";
import { Empty, Failure, Skeletons } from "@/parts/states";
import { count, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { LastUsed } from "./last-used";
import { askedFor, type Holder, holderPath, LOOKED, type Looked, USUAL_DAYS } from "./words";

/** Each comes with up to a hundred names. */
const PAGE = 25;

type IdleServer = Shapes["IdleServerShown"];

function useUnused(kind: Holder["kind"], days: string, sinceMs: () => number) {
  return useInfiniteQuery({
    queryKey: ["derived", "unused", kind, days],
    queryFn: ({ pageParam, signal }) => {
      const query = { kind, since: sinceMs(), limit: PAGE, cursor: pageParam };
      return take(api.GET("/admin/api/unused", { params: { query }, signal }));
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
  });
}

export function UnusedList() {
  const [params, setParams] = useSearchParams();
  const { days, setDays, sinceMs } = useDays(USUAL_DAYS);
  const looked = askedFor(params.get("of"));
  const found = useUnused(looked === "key" ? "key" : "task", days, sinceMs);
  const [first] = found.data?.pages ?? [];
  const look = (next: string) =>
    setParams(
      (old) => {
        if (next === "task") old.delete("of");
        else old.set("of", next);
        return old;
      },
      { replace: true },
    );
  return (
    <>
      <PageHead
        title="Unused grants"
        about="Tools and servers that are granted but not used. This page changes nothing."
      />
      <Stack gap="sm">
        <Group gap="md">
          <SegmentedControl
            size="xs"
            aria-label="Grants of"
            value={looked}
            onChange={look}
            data={[...LOOKED]}
          />
          <Span days={days} setDays={setDays} />
          {first ? <Text size="sm">Not used since {moment(first.since_ms)}</Text> : null}
        </Group>
        <Warnings warnings={first?.warnings ?? []} />
        {found.isError ? <Failure error={found.error} onRetry={() => void found.refetch()} /> : null}
        {first === undefined && !found.isError ? <Skeletons what="Reading the audit log" /> : null}
        {first === undefined ? null : (
          <Found
            looked={looked}
            days={days}
            holders={found.data?.pages.flatMap((page) => page.holders) ?? []}
            servers={first.servers}
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
  readonly days: string;
  readonly holders: readonly Holder[];
  readonly servers: readonly IdleServer[];
}

function Found({ looked, days, holders, servers }: FoundProps) {
  if (looked === "server")
    return (
      <DataTable
        key="server"
        label="Unused servers"
        rows={servers}
        columns={SERVERS}
        keyOf={(one) => one.server_id}
        hrefOf={(one) => `/servers/${encodeURIComponent(one.server_id)}`}
        sort={{ key: "id" }}
        empty={<Empty title="No unused servers">Every server was used in this time range.</Empty>}
      />
    );
  return (
    <DataTable
      key={looked}
      label={looked === "task" ? "Tasks" : "Keys"}
      rows={holders}
      columns={looked === "task" ? TASKS : KEYS}
      keyOf={(one) => `${one.kind}/${one.id}`}
      hrefOf={(one) => holderPath(one, days)}
      sort={{ key: "unused", isDown: true }}
      empty={<Nothing of={looked} />}
    />
  );
}

function Nothing({ of }: { readonly of: "task" | "key" }) {
  return of === "task" ? (
    <Empty title="No tasks yet">
      Without a task, callers see all tools that their key allows. See Keys instead.
    </Empty>
  ) : (
    <Empty title="No keys yet">Without keys, only local callers reach the gateway.</Empty>
  );
}

function columnsOf(title: string): readonly Column<Holder>[] {
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
      width: 160,
      sortBy: (one) => one.last_used_ms ?? 0,
      show: (one) => <LastUsed ms={one.last_used_ms} />,
    },
  ];
}

const TASKS = columnsOf("Task");
const KEYS = columnsOf("Key");

const SERVERS: readonly Column<IdleServer>[] = [
  {
    key: "id",
    title: "Server",
    sortBy: (one) => one.server_id,
    show: (one) => <Untrusted text={one.server_id} mono />,
  },
  {
    key: "last",
    title: "Last used",
    width: 160,
    sortBy: (one) => one.last_used_ms ?? 0,
    show: (one) => <LastUsed ms={one.last_used_ms} />,
  },
];
