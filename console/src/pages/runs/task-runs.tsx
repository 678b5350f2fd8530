/** The runs of one task, and a form to start one. */
import { Badge, Button, Group, Text, Textarea } from "@mantine/core";
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useParams } from "react-router";
import { api, take } from "@/api/client";
import { useTyped } from "@/api/typed";
import { type Column, DataTable } from "@/parts/data-table";
import { ClearFilters, FilterRow, type FilterSelect, useFilters } from "@/parts/filter-row";
import { hasWords } from "@/parts/filter-words";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure, Skeletons } from "@/parts/states";
import { ago, duration, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { useAllPages } from "@/parts/use-all-pages";
import { COLOURS, endOf, type Summary, tookMs } from "./run-log";

const PAGE = 50;
const LOOK_MS = 3_000;

function useRuns(taskId: string) {
  return useInfiniteQuery({
    queryKey: ["runs", taskId],
    queryFn: ({ pageParam, signal }) => {
      const params = { path: { task_id: taskId }, query: { limit: PAGE, cursor: pageParam } };
      return take(api.GET("/api/v1/tasks/{task_id}/invocations", { params, signal }));
    },
    initialPageParam: undefined as string | undefined,
    getNextPageParam: (page) => page.next_cursor ?? undefined,
    refetchInterval: LOOK_MS,
  });
}

export function TaskRuns() {
  const { taskId = "" } = useParams();
  const found = useRuns(taskId);
  const runs = found.data?.pages.flatMap((page) => page.invocations);
  const { of, text } = useFilters();
  useAllPages(found, found.data?.pages.length ?? 0, text + of(STATE.name) !== "");
  return (
    <>
      <PageHead title={taskId} about="Runs of this task.">
        <Button component={Link} to={`/tasks/${encodeURIComponent(taskId)}`} variant="default">
          Open the task
        </Button>
      </PageHead>
      {found.isError && runs === undefined ? (
        <Failure error={found.error} onRetry={() => void found.refetch()} />
      ) : runs === undefined ? (
        <Skeletons what="Loading the runs" />
      ) : (
        <>
          <Begin taskId={taskId} />
          {runs.length > 0 ? <FilterRow find="Find by who started it" selects={[STATE]} /> : null}
          <Runs runs={runs} />
        </>
      )}
      {found.hasNextPage ? (
        <Button variant="default" mt="sm" onClick={() => void found.fetchNextPage()}>
          Show older
        </Button>
      ) : null}
    </>
  );
}

function Begin({ taskId }: { readonly taskId: string }) {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [input, setInput] = useState("");
  useTyped(input !== "");
  const begin = useMutation({
    mutationFn: () =>
      take(
        api.POST("/api/v1/tasks/{task_id}/invocations", {
          params: { path: { task_id: taskId } },
          body: { input, mode: "async" },
        }),
      ),
    onSuccess: (run) => {
      void queries.invalidateQueries({ queryKey: ["runs", taskId] });
      void navigate(encodeURIComponent(run.invocation_id));
    },
  });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        begin.mutate();
      }}
    >
      <Textarea
        label="Input"
        description="Standard input, up to 1 MiB of text. The run acts as you, under the task's policy."
        value={input}
        onChange={(event) => setInput(event.currentTarget.value)}
        autosize
        minRows={2}
        maxRows={12}
        maw={720}
      />
      {begin.isError ? <Failure error={begin.error} /> : null}
      <Group my="sm">
        <Button type="submit" loading={begin.isPending}>
          Run
        </Button>
      </Group>
    </form>
  );
}

const COLUMNS: readonly Column<Summary>[] = [
  {
    key: "began",
    title: "Run",
    sortBy: (one) => one.created_ms,
    show: (one) => (
      <>
        <Text size="sm" fw={600}>
          {moment(one.created_ms)}
        </Text>
        <Text size="xs" c="dimmed">
          {ago(one.created_ms)}
        </Text>
      </>
    ),
  },
  { key: "state", title: "State", show: (one) => <RunBadge state={one.state} /> },
  { key: "end", title: "Result", show: endOf },
  {
    key: "took",
    title: "Duration",
    show: (one) => tookOf(one),
    sortBy: (one) => tookMs(one, Date.now()) ?? -1,
    isMinor: true,
  },
  {
    key: "who",
    title: "Started by",
    show: (one) => <Untrusted text={one.principal} mono />,
    isMinor: true,
  },
];

const STATE: FilterSelect = {
  name: "state",
  label: "State",
  any: "Any state",
  data: Object.keys(COLOURS).map((one) => ({ value: one, label: one })),
};

export function tookOf(run: Summary): string {
  const ms = tookMs(run, Date.now());
  return ms === null ? "–" : duration(ms);
}

export function RunBadge({ state }: { readonly state: Summary["state"] }) {
  return (
    <Badge color={COLOURS[state]} variant="light" tt="none" miw="max-content">
      {state}
    </Badge>
  );
}

function Runs({ runs }: { readonly runs: readonly Summary[] }) {
  const { of, text } = useFilters();
  const state = of(STATE.name);
  return (
    <DataTable
      label="Runs"
      rows={runs.filter((one) => (state === "" || one.state === state) && hasWords(text, one.principal))}
      columns={COLUMNS}
      keyOf={(one) => one.invocation_id}
      hrefOf={(one) => encodeURIComponent(one.invocation_id)}
      empty={
        runs.length > 0 ? (
          <Empty title="No runs match" firstStep={<ClearFilters names={[STATE.name]} />} />
        ) : (
          <Empty title="No runs yet">Enter what the program reads as its input, then choose Run.</Empty>
        )
      }
    />
  );
}
