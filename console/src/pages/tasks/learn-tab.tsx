/** The least-privilege policy of a task: what it keeps, what it removes, and its review. */
import { Badge, Button, Group, Stack, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { useMay } from "@/api/me";
import { type Column, DataTable } from "@/parts/data-table";
import { Warnings } from "@/parts/plan-panel";
import { Span, useDays } from "@/parts/span";
import { Empty, Loaded } from "@/parts/states";
import { ago, count, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";

/** As `toolgate learn` has it. */
const USUAL_DAYS = "7";

type Lesson = Shapes["LearnResponse"];

export function LearnTab({ id }: { readonly id: string }) {
  const { days, setDays, sinceMs } = useDays(USUAL_DAYS);
  const lesson = useQuery({
    queryKey: ["derived", "learn", id, days],
    queryFn: ({ signal }) =>
      take(
        api.GET("/admin/api/tasks/{task_id}/learn", {
          params: { path: { task_id: id }, query: { since: sinceMs() } },
          signal,
        }),
      ),
    retry: false,
  });
  return (
    <Stack gap="md">
      <Group gap="sm">
        <Text>Tools used in the last</Text>
        <Span days={days} setDays={setDays} />
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
          columns={REMOVED}
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

function When({ ms }: { readonly ms: number | null }) {
  return ms === null ? "never" : <span title={moment(ms)}>{ago(ms)}</span>;
}

const REMOVED: readonly Column<Lesson["removed"][number]>[] = [
  { key: "name", title: "Tool", sortBy: nameOf, show: (one) => <Untrusted text={nameOf(one)} mono /> },
  {
    key: "last",
    title: "Last used",
    sortBy: (one) => one.last_used_ms ?? 0,
    show: (one) => <When ms={one.last_used_ms} />,
    width: 160,
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

const KEPT: readonly Column<Lesson["kept"][number]>[] = [
  {
    key: "name",
    title: "Tool",
    sortBy: nameOf,
    show: (one) => (
      <Group gap="xs">
        <Untrusted text={nameOf(one)} mono />
        {one.is_anew ? (
          <Badge color="yellow" variant="light" tt="none">
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
    show: (one) => <When ms={one.last_used_ms} />,
    width: 160,
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
