/** All tasks: what each sees of all tools, and its problems. */
import { Badge, Button, Group, Stack, Text, TextInput, Tooltip } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Link, useSearchParams } from "react-router";
import type { Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { type Column, DataTable } from "@/parts/data-table";
import { useFindings } from "@/parts/findings";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { overviewQuery } from "./queries";

type Overview = Shapes["OverviewResponse"];
interface Row {
  readonly task: Shapes["TaskOverview"];
  readonly findings: number;
}

export function TaskList() {
  const overview = useQuery(overviewQuery);
  const mayWrite = useMay("publisher");
  return (
    <>
      <PageHead title="Tasks" about="A task names a kind of work and selects the tools for it.">
        {mayWrite ? (
          <Button component={Link} to="/tasks/-/new" leftSection={<IconPlus size={16} />}>
            New task
          </Button>
        ) : null}
      </PageHead>
      <Loaded query={overview} what="Loading the tasks">
        {(found) => <Tasks overview={found} />}
      </Loaded>
    </>
  );
}

function Tasks({ overview }: { readonly overview: Overview }) {
  const findings = useFindings("task");
  const [params, setParams] = useSearchParams();
  const text = params.get("q") ?? "";
  const columns = useMemo(() => columnsOf(overview.registered_tokens), [overview.registered_tokens]);
  const rows = overview.tasks
    .filter(({ task_id, display_name }) =>
      `${task_id} ${display_name}`.toLowerCase().includes(text.trim().toLowerCase()),
    )
    .map((task) => ({ task, findings: findings.get(task.task_id)?.length ?? 0 }));
  if (overview.tasks.length === 0) {
    return (
      <Empty title="No tasks yet">
        Without a task, callers see all tools that their key allows. Create a task to give a kind of work only
        the tools it needs.
      </Empty>
    );
  }
  return (
    <Stack gap="sm">
      <TextInput
        aria-label="Filter by name"
        placeholder="Filter by name"
        type="search"
        maw={320}
        value={text}
        onChange={(event) =>
          setParams(event.currentTarget.value ? { q: event.currentTarget.value } : {}, { replace: true })
        }
      />
      <DataTable
        label="Tasks"
        rows={rows}
        columns={columns}
        keyOf={(row) => row.task.task_id}
        hrefOf={(row) => `/tasks/${encodeURIComponent(row.task.task_id)}`}
        sort={{ key: "id" }}
        empty={<Empty title="No tasks match" />}
      />
    </Stack>
  );
}

function columnsOf(allTokens: number): readonly Column<Row>[] {
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
      key: "servers",
      title: "Servers",
      isMinor: true,
      width: "22%",
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
    {
      key: "tools",
      title: "Tools",
      align: "right",
      width: 80,
      sortBy: ({ task }) => task.tools,
      show: ({ task }) => count(task.tools),
    },
    {
      key: "tokens",
      title: "Tokens",
      isMinor: true,
      align: "right",
      width: 170,
      sortBy: ({ task }) => task.tokens,
      show: ({ task }) => `${count(task.tokens)} of ${count(allTokens)}`,
    },
    { key: "notes", title: "Notes", width: 150, show: (row) => <Notes row={row} /> },
  ];
}

function Notes({ row: { task, findings } }: { readonly row: Row }) {
  return (
    <Group gap={4}>
      {task.refusal ? (
        <Tooltip label={visibleText(task.refusal.message)} multiline maw={360}>
          <Badge color="red" variant="light" tt="none">
            refused
          </Badge>
        </Tooltip>
      ) : null}
      {task.warnings.length > 0 ? (
        <Tooltip label={visibleText(task.warnings.join("; "))} multiline maw={360}>
          <Badge color="yellow" variant="light" tt="none">
            {count(task.warnings.length)} to review
          </Badge>
        </Tooltip>
      ) : null}
      {findings > 0 ? (
        <Badge color="orange" variant="light" tt="none">
          {count(findings)} {findings === 1 ? "unused rule" : "unused rules"}
        </Badge>
      ) : null}
    </Group>
  );
}
