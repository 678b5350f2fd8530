/** The queue: pending approvals with their details; decided ones in a table. */
import { Button, Stack } from "@mantine/core";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { api, take } from "@/api/client";
import { type Column, DataTable } from "@/parts/data-table";
import { ClearFilters, FilterRow, useFilters } from "@/parts/filter-row";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure, Skeletons } from "@/parts/states";
import { ago, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { useAllPages } from "@/parts/use-all-pages";
import { ApprovalCard, ApprovalState } from "./approval-card";
import {
  type Approval,
  askedState,
  decidedAs,
  filtered,
  LOOK_MS,
  nameOf,
  STATES,
  type State,
} from "./states";

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
  const { of, text } = useFilters();
  const state = askedState(of("state"));
  const found = useApprovals(state);
  const all = found.data?.pages.flatMap((page) => page.approvals);
  const filter = { text, by: of("by"), server: of("server") };
  const isFiltered = text + filter.by + filter.server !== "";
  useAllPages(found, found.data?.pages.length ?? 0, isFiltered);
  const choices = (values: readonly string[], chosen: string) =>
    [...new Set(chosen === "" ? values : [chosen, ...values])]
      .sort()
      .map((one) => ({ value: one, label: one }));
  return (
    <>
      <PageHead title="Approvals" about="Tool calls that need a person's approval." />
      <FilterRow
        find="Find by tool, argument or reason"
        selects={[
          { name: "state", label: "State", any: "Pending", data: STATES },
          {
            name: "by",
            label: "Asked by",
            any: "Asked by anyone",
            data: choices(all?.map((one) => one.principal) ?? [], filter.by),
          },
          {
            name: "server",
            label: "Server",
            any: "Any server",
            data: choices(all?.map((one) => one.server_id) ?? [], filter.server),
          },
        ]}
      />
      {found.isError ? <Failure error={found.error} onRetry={() => void found.refetch()} /> : null}
      {all === undefined && !found.isError ? <Skeletons what="Loading approvals" /> : null}
      {all === undefined ? null : all.length > 0 && filtered(all, filter).length === 0 ? (
        <Empty title="No approvals match" firstStep={<ClearFilters names={["by", "server"]} />} />
      ) : (
        <Found state={state} approvals={filtered(all, filter)} />
      )}
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

interface FoundProps {
  readonly state: State | "all";
  readonly approvals: Approval[];
}

function Found({ state, approvals }: FoundProps) {
  if (approvals.length === 0)
    return state === "pending" ? (
      <NothingPending />
    ) : (
      <Empty title="No approvals" firstStep={<ClearFilters names={["state"]} />}>
        No call is in this state.
      </Empty>
    );
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
    <Empty
      title="No pending approvals"
      firstStep={
        <>
          <Button component={Link} to="/approvals?state=all" variant="default">
            Past decisions
          </Button>
          <Button component={Link} to="/servers" variant="default">
            Require approvals of a server
          </Button>
        </>
      }
    >
      A call needs an approval if its server or its task says so: for each tool, or for all tools that are not
      read-only.
    </Empty>
  );
}

const COLUMNS: readonly Column<Approval>[] = [
  {
    key: "tool",
    title: "Call",
    show: (one) => <Untrusted text={nameOf(one)} mono />,
    sortBy: nameOf,
  },
  { key: "state", title: "State", show: (one) => <ApprovalState state={one.state} /> },
  { key: "who", title: "Asked by", show: (one) => <Untrusted text={one.principal} mono />, isMinor: true },
  {
    key: "asked",
    title: "Asked",
    show: (one) => <span title={moment(one.created_ms)}>{ago(one.created_ms)}</span>,
    sortBy: (one) => one.created_ms,
  },
  {
    key: "by",
    title: "Decided by",
    show: (one) => <DecidedBy approval={one} />,
    isMinor: true,
  },
  {
    key: "reason",
    title: "Reason",
    show: (one) => (one.reason ? <Untrusted text={one.reason} /> : "–"),
    isMinor: true,
  },
];

function DecidedBy({ approval }: { readonly approval: Approval }) {
  if (approval.decided_by === null) return approval.state === "expired" ? "no one" : "–";
  const as = decidedAs(approval);
  return (
    <>
      <Untrusted text={approval.decided_by} mono />
      {as === null ? null : ` (${as})`}
    </>
  );
}

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
