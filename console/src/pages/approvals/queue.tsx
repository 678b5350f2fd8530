/** The queue: pending approvals with their details; decided ones in a table. */
import { Button, NativeSelect, Stack } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";
import { api, take } from "@/api/client";
import { type Column, DataTable } from "@/parts/data-table";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure, Skeletons } from "@/parts/states";
import { ago, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { ApprovalCard, ApprovalState } from "./approval-card";
import { type Approval, askedState, LOOK_MS, STATES, type State } from "./states";

const PAGE = 50;

function useApprovals(state: State | "all") {
  return useInfiniteQuery({
    queryKey: ["approvals", "list", state],
    queryFn: ({ pageParam, signal }) => {
      const query = { state: state === "all" ? undefined : state, limit: PAGE, cursor: pageParam };
      return take(api.GET("/admin/api/approvals", { params: { query }, signal }));
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    refetchInterval: LOOK_MS,
  });
}

export function Queue() {
  const [query, setQuery] = useSearchParams();
  const state = askedState(query.get("state"));
  const found = useApprovals(state);
  const approvals = found.data?.pages.flatMap((page) => page.approvals);
  return (
    <>
      <PageHead title="Approvals" about="Tool calls that need a person's approval." />
      <NativeSelect
        label="State"
        data={[...STATES]}
        value={state}
        onChange={(event) => setQuery({ state: event.currentTarget.value }, { replace: true })}
        maw={280}
        mb="md"
      />
      {found.isError ? <Failure error={found.error} onRetry={() => void found.refetch()} /> : null}
      {approvals === undefined && !found.isError ? <Skeletons what="Loading approvals" /> : null}
      {approvals === undefined ? null : <Found state={state} approvals={approvals} />}
      {found.hasNextPage ? (
        <Button
          variant="default"
          mt="sm"
          onClick={() => void found.fetchNextPage()}
          loading={found.isFetchingNextPage}
        >
          Show older
        </Button>
      ) : null}
    </>
  );
}

function Found({ state, approvals }: { readonly state: State | "all"; readonly approvals: Approval[] }) {
  if (approvals.length === 0)
    return state === "pending" ? <NothingPending /> : <Empty title="No approvals" />;
  if (state !== "pending") return <Past approvals={approvals} />;
  return (
    <Stack>
      {approvals.map((one) => (
        <ApprovalCard key={one.approval_id} approval={one} isInList />
      ))}
    </Stack>
  );
}

function NothingPending() {
  return (
    <Empty title="No pending approvals">
      A call needs approval if its server's <span className="mono">approval_policy</span> says so, by tool or
      for all tools that are not read-only. A task can require more with{" "}
      <span className="mono">mcp.approval_policy</span>.
    </Empty>
  );
}

const COLUMNS: readonly Column<Approval>[] = [
  {
    key: "tool",
    title: "Call",
    show: (one) => <Untrusted text={`${one.server_id}.${one.tool}`} mono />,
    sortBy: (one) => `${one.server_id}.${one.tool}`,
  },
  { key: "state", title: "State", show: (one) => <ApprovalState state={one.state} /> },
  { key: "who", title: "Caller", show: (one) => <Untrusted text={one.principal} mono /> },
  {
    key: "asked",
    title: "Requested",
    show: (one) => <span title={moment(one.created_ms)}>{ago(one.created_ms)}</span>,
    sortBy: (one) => one.created_ms,
  },
  {
    key: "by",
    title: "Decided by",
    show: (one) => (one.decided_by === null ? "–" : <Untrusted text={one.decided_by} mono />),
    isMinor: true,
  },
  {
    key: "reason",
    title: "Reason",
    show: (one) => (one.reason ? <Untrusted text={one.reason} /> : "–"),
    isMinor: true,
  },
];

function Past({ approvals }: { readonly approvals: Approval[] }) {
  return (
    <DataTable
      label="Approvals"
      rows={approvals}
      columns={COLUMNS}
      keyOf={(one) => one.approval_id}
      hrefOf={(one) => `/approvals/${encodeURIComponent(one.approval_id)}`}
    />
  );
}
