/** The least-privilege policy of a task: what it keeps, what it removes, and its review. */
import { Badge, Button, Group, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { useMay } from "@/api/me";
import { type Column, DataTable } from "@/parts/data-table";
import { LastUsed } from "@/parts/last-used";
import { Warnings } from "@/parts/plan-panel";
import { Empty, Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { type Range, TimeRangePicker, useTimeRange } from "@/parts/time-range";
import { Untrusted } from "@/parts/untrusted";

/** As `toolgate learn` has it. */
const USUAL: Range = "7d";
const SPANS: readonly Range[] = ["7d", "30d", "90d"];

type Lesson = Shapes["LearnResponse"];

export function LearnTab({ id }: { readonly id: string }) {
  const time = useTimeRange(USUAL, SPANS);
  const lesson = useQuery({
    queryKey: ["derived", "learn", id, time.range],
    queryFn: ({ signal }) =>
      take(
        api.GET("/admin/api/tasks/{task_id}/learn", {
          params: { path: { task_id: id }, query: { since: Date.now() - time.ms } },
          signal,
        }),
      ),
    retry: false,
  });
  return (
    <Stack gap="md">
      <Group gap="sm">
        <Text>Tools used in {time.words}</Text>
        <TimeRangePicker time={time} />
      </Group>
      <Loaded query={lesson} what="Reading the audit log">
        {(found) => <Proposal id={id} lesson={found} />}
      </Loaded>
    </Stack>
  );
}

function Proposal({ id, lesson }: { readonly id: string; readonly lesson: Lesson }) {
  const navigate = useNavigate();
  const mayWrite = useMay("publisher");
  const { kept, removed } = lesson;
  const review = () =>
    void navigate(`/tasks/${encodeURIComponent(id)}/edit`, { state: { learned: lesson.record } });
  return (
    <Stack gap="md">
      <Group justify="space-between">
        <Text>
          {some(lesson.calls, "call")} used {some(kept.length, "tool")}. {count(removed.length)} unused,
          removing them saves about {some(lesson.tokens_saved, "token")} per list.
        </Text>
        {mayWrite ? (
          <Button onClick={review} disabled={lesson.plan.changes.length === 0}>
            Review policy without them
          </Button>
        ) : null}
      </Group>
      <Warnings warnings={lesson.warnings} />
      <section aria-label="Unused">
        <Title order={2} size="h4" mb="xs">
          Unused
        </Title>
        <DataTable
          label="Unused tools"
          rows={removed}
          columns={removedColumns(lesson.audit_begins_ms)}
          keyOf={nameOf}
          sort={{ key: "name" }}
          empty={<Empty title="No unused tools">Every tool in the task's scope was used.</Empty>}
        />
      </section>
      <section aria-label="Used">
        <Title order={2} size="h4" mb="xs">
          Used
        </Title>
        <DataTable
          label="Used tools"
          rows={kept}
          columns={KEPT}
          keyOf={nameOf}
          sort={{ key: "name" }}
          empty={<Empty title="No calls">The task used no tools in this time range.</Empty>}
        />
      </section>
    </Stack>
  );
}

function some(many: number, what: string): string {
  return `${count(many)} ${what}${many === 1 ? "" : "s"}`;
}

function nameOf(one: { readonly server_id: string; readonly tool: string }): string {
  return `${one.server_id}.${one.tool}`;
}

function removedColumns(beginsMs: number | null): readonly Column<Lesson["removed"][number]>[] {
  return [
    { key: "name", title: "Tool", sortBy: nameOf, show: (one) => <Untrusted text={nameOf(one)} mono /> },
    {
      key: "last",
      title: "Last used",
      sortBy: (one) => one.last_used_ms ?? 0,
      show: (one) => <LastUsed ms={one.last_used_ms} beginsMs={beginsMs} />,
      width: 190,
    },
    {
      key: "tokens",
      title: "Tokens",
      align: "right",
      sortBy: (one) => one.tokens,
      show: (one) => count(one.tokens),
      width: 90,
    },
  ];
}

const KEPT: readonly Column<Lesson["kept"][number]>[] = [
  {
    key: "name",
    title: "Tool",
    sortBy: nameOf,
    show: (one) => (
      <Group gap="xs">
        <Untrusted text={nameOf(one)} mono />
        {one.is_anew ? (
          <Badge color="yellow" variant="light">
            pattern
          </Badge>
        ) : null}
      </Group>
    ),
  },
  {
    key: "last",
    title: "Last used",
    sortBy: (one) => one.last_used_ms,
    show: (one) => <LastUsed ms={one.last_used_ms} beginsMs={null} />,
    width: 190,
  },
  {
    key: "calls",
    title: "Calls",
    align: "right",
    sortBy: (one) => one.calls,
    show: (one) => count(one.calls),
    width: 90,
  },
];
