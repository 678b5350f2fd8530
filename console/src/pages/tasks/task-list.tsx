/** All tasks: what each offers of all tools, and its problems. */
import { Badge, Button, Group, Text, Tooltip } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link } from "react-router";
import type { Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { serversQuery, tasksQuery } from "@/api/records";
import { type Column, DataTable } from "@/parts/data-table";
import { ClearFilters, FilterRow, useFilters } from "@/parts/filter-row";
import { hasWords } from "@/parts/filter-words";
import { useFindings } from "@/parts/findings";
import { Offered, type WhyNothing } from "@/parts/offered";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { useToolsChange } from "@/parts/use-tools-change";
import { visibleText } from "@/parts/visible";
import { whyNothing } from "./nothing";
import { overviewQuery, profilesOverviewQuery } from "./queries";

type Overview = Shapes["OverviewResponse"];
interface Row {
  readonly task: Shapes["TaskOverview"];
  readonly warnings: number;
  readonly findings: number;
  readonly why: WhyNothing | null;
}

/** What a filter by state finds. */
const STATES: Readonly<Record<string, { label: string; has: (row: Row) => boolean }>> = {
  none: { label: "No tools offered", has: ({ task }) => task.tools === 0 },
  denied: { label: "Requests denied", has: ({ task }) => task.refusal !== null },
  review: { label: "Something to review", has: (row) => row.warnings + row.findings > 0 },
  fine: {
    label: "Nothing to do",
    has: (row) => row.task.tools > 0 && row.warnings + row.findings === 0,
  },
};
const SELECTED = ["state", "server"] as const;

export function TaskList() {
  const overview = useQuery(overviewQuery);
  useToolsChange();
  return (
    <>
      <PageHead title="Tasks" about="A task names a kind of work and selects the tools for it.">
        <NewTaskButton />
      </PageHead>
      <Loaded query={overview} what="Loading the tasks">
        {(found) => (found.tasks.length === 0 ? <NoTasks /> : <Tasks overview={found} />)}
      </Loaded>
    </>
  );
}

function NewTaskButton() {
  if (!useMay("publisher")) return null;
  return (
    <Button component={Link} to="/tasks/-/new" leftSection={<IconPlus size={16} />}>
      New task
    </Button>
  );
}

function NoTasks() {
  const mayWrite = useMay("publisher");
  return (
    <Empty
      title="No tasks yet"
      firstStep={
        mayWrite ? (
          <>
            <Button component={Link} to="/tasks/-/new">
              Make the first task
            </Button>
            <Button component={Link} to="/catalog" variant="default">
              Pick tools in the catalog
            </Button>
          </>
        ) : null
      }
    >
      Without a task, callers see all tools that their key allows. Create a task to give a kind of work only
      the tools it needs.
    </Empty>
  );
}

function Tasks({ overview }: { readonly overview: Overview }) {
  const findings = useFindings("task");
  const records = useQuery(tasksQuery).data;
  const servers = useQuery(serversQuery).data;
  const profiles = useQuery(profilesOverviewQuery).data?.profiles;
  const { of, text } = useFilters();
  const columns = useMemo(
    () => columnsOf(overview.registered_tools, overview.registered_tokens),
    [overview.registered_tools, overview.registered_tokens],
  );
  const rows = useMemo(() => {
    const configs = new Map(records?.map((one) => [one.task_id, one.config]));
    return overview.tasks.map((task) => ({
      task,
      // That nothing is left is said with its reason.
      warnings: task.tools === 0 ? 0 : task.warnings.length,
      findings: findings.get(task.task_id)?.length ?? 0,
      why: whyNothing(task, configs.get(task.task_id), servers, profiles),
    }));
  }, [overview.tasks, records, servers, profiles, findings]);
  const [state, server] = SELECTED.map(of);
  const shown = rows.filter(
    (row) =>
      hasWords(text, row.task.task_id, row.task.display_name) &&
      (STATES[state ?? ""]?.has(row) ?? true) &&
      (server === "" || row.task.servers.includes(server ?? "")),
  );
  const used = [...new Set(overview.tasks.flatMap((one) => one.servers))].sort();
  return (
    <>
      <FilterRow
        find="Find by name or title"
        selects={[
          {
            name: "state",
            label: "State",
            any: "Any state",
            data: Object.entries(STATES).map(([value, { label }]) => ({ value, label })),
          },
          {
            name: "server",
            label: "Server",
            any: "Any server",
            data: used.map((one) => ({ value: one, label: one })),
          },
        ]}
      />
      <DataTable
        label="Tasks"
        rows={shown}
        columns={columns}
        keyOf={(row) => row.task.task_id}
        hrefOf={(row) => `/tasks/${encodeURIComponent(row.task.task_id)}`}
        sort={{ key: "id" }}
        empty={<Empty title="No tasks match" firstStep={<ClearFilters names={SELECTED} />} />}
      />
    </>
  );
}

function columnsOf(allTools: number, allTokens: number): readonly Column<Row>[] {
  return [
    {
      key: "id",
      title: "Task",
      sortBy: ({ task }) => task.task_id,
      show: ({ task }) => (
        <>
          <Text size="sm" fw={600} component="div">
            <Untrusted text={task.task_id} mono />
          </Text>
          <Text size="xs" c="dimmed" component="div" lineClamp={1}>
            <Untrusted text={task.display_name} />
          </Text>
        </>
      ),
    },
    {
      key: "tools",
      title: "Tools offered",
      width: "26%",
      sortBy: ({ task }) => task.tools,
      show: ({ task, why }) => <Offered tools={task.tools} of={allTools} why={why} />,
    },
    {
      key: "tokens",
      title: "Tokens",
      isMinor: true,
      align: "right",
      width: 150,
      sortBy: ({ task }) => task.tokens,
      show: ({ task }) => `${count(task.tokens)} of ${count(allTokens)}`,
    },
    {
      key: "servers",
      title: "Servers",
      isMinor: true,
      width: "20%",
      sortBy: ({ task }) => task.servers.length,
      show: ({ task }) => (
        <Text size="sm" component="div" lineClamp={1} title={visibleText(task.servers.join(", "))}>
          {count(task.servers.length)}{" "}
          <Text span size="xs" c="dimmed">
            <Untrusted text={task.servers.slice(0, 12).join(", ")} />
          </Text>
        </Text>
      ),
    },
    { key: "notes", title: "To review", width: 150, isMinor: true, show: (row) => <Notes row={row} /> },
  ];
}

function Notes({ row: { task, warnings, findings } }: { readonly row: Row }) {
  if (warnings + findings === 0 && task.refusal === null) return "–";
  return (
    <Group gap={4}>
      {task.refusal ? (
        <Badge color="red" variant="light">
          requests denied
        </Badge>
      ) : null}
      {warnings > 0 ? (
        <Tooltip label={visibleText(task.warnings.join("; "))} multiline maw={360}>
          <Badge color="yellow" variant="light">
            {count(warnings)} {warnings === 1 ? "warning" : "warnings"}
          </Badge>
        </Tooltip>
      ) : null}
      {findings > 0 ? (
        <Badge color="orange" variant="light">
          {count(findings)} {findings === 1 ? "unused rule" : "unused rules"}
        </Badge>
      ) : null}
    </Group>
  );
}
