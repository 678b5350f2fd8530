/** One task: its tools, usage, client settings, record and history. */
import { Button, Group, Stack, Tabs, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearchParams } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { serversQuery } from "@/api/records";
import { BudgetUses } from "@/parts/budget-uses";
import { ConnectPanel } from "@/parts/connect-panel";
import { CodeBlock } from "@/parts/copy";
import { type Column, DataTable } from "@/parts/data-table";
import { Findings, useFindings } from "@/parts/findings";
import { HistoryPanel } from "@/parts/history-panel";
import { NothingOffered, Offered } from "@/parts/offered";
import { PageHead } from "@/parts/page-head";
import { Warnings } from "@/parts/plan-panel";
import { Prose } from "@/parts/prose";
import { RecordActions } from "@/parts/record-actions";
import { Empty, Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { useToolsChange } from "@/parts/use-tools-change";
import { LearnTab } from "./learn-tab";
import { whyNothing } from "./nothing";
import { overviewQuery, profilesOverviewQuery, taskQuery, toolsQuery } from "./queries";

export function TaskPage() {
  const { id = "" } = useParams();
  const query = useQuery(taskQuery(id));
  return (
    <Loaded query={query} what="Loading the task">
      {({ record, etag }) => <TaskShown task={record} etag={etag} />}
    </Loaded>
  );
}

type Task = Shapes["TaskShown"];
const TABS = ["sees", "learn", "connect", "record", "history"] as const;

function TaskShown({ task, etag }: { readonly task: Task; readonly etag: string }) {
  const id = task.task_id;
  const [params, setParams] = useSearchParams();
  const tab = TABS.find((one) => one === params.get("tab")) ?? "sees";
  const findings = useFindings("task").get(id);
  const overview = useQuery(overviewQuery).data?.tasks.find((one) => one.task_id === id);
  const servers = useQuery(serversQuery).data;
  const profiles = useQuery(profilesOverviewQuery).data?.profiles;
  const why = overview ? whyNothing(overview, task.config, servers, profiles) : null;
  useToolsChange();
  return (
    <>
      <PageHead title={id} about={<Untrusted text={task.display_name} />}>
        <RecordActions
          kind="task"
          id={id}
          home="/tasks"
          lens={`/scope?task=${encodeURIComponent(id)}`}
          writer="publisher"
          remove={(plan) => remove(id, etag, plan)}
        />
      </PageHead>
      <Stack gap="md">
        {why ? <NothingOffered why={why} /> : <Warnings warnings={overview?.warnings ?? []} />}
        <Findings findings={findings} />
        {"mcp.budgets" in task.config ? <BudgetUses of={{ kind: "task", id }} /> : null}
        <Tabs
          value={tab}
          onChange={(next) => setParams(next === "sees" ? {} : { tab: next ?? "" }, { replace: true })}
        >
          <Tabs.List mb="md">
            <Tabs.Tab value="sees">Tools</Tabs.Tab>
            <Tabs.Tab value="learn">Usage</Tabs.Tab>
            <Tabs.Tab value="connect">Connect</Tabs.Tab>
            <Tabs.Tab value="record">Record</Tabs.Tab>
            <Tabs.Tab value="history">History</Tabs.Tab>
          </Tabs.List>
          <Tabs.Panel value="sees">{tab === "sees" ? <Sees id={id} /> : null}</Tabs.Panel>
          <Tabs.Panel value="learn">{tab === "learn" ? <LearnTab id={id} /> : null}</Tabs.Panel>
          <Tabs.Panel value="connect">{tab === "connect" ? <ConnectPanel task={id} /> : null}</Tabs.Panel>
          <Tabs.Panel value="record">
            <CodeBlock text={recordText(task)} label="record" />
          </Tabs.Panel>
          <Tabs.Panel value="history">
            {tab === "history" ? <HistoryPanel kind="task" id={id} writer="publisher" /> : null}
          </Tabs.Panel>
        </Tabs>
      </Stack>
    </>
  );
}

function recordText({ revision: _revision, ...record }: Task): string {
  return JSON.stringify(record, null, 2);
}

function remove(id: string, etag: string, plan: string) {
  return take(
    api.DELETE("/admin/api/tasks/{task_id}", {
      params: { path: { task_id: id }, header: { "Toolgate-Plan": plan, "If-Match": etag } },
    }),
  );
}

type Tool = Shapes["ToolSeen"];

const COLUMNS: readonly Column<Tool>[] = [
  {
    key: "name",
    title: "Tool",
    width: "28%",
    sortBy: (one) => one.name,
    show: (one) => <Untrusted text={one.name} mono />,
  },
  {
    key: "description",
    title: "Description",
    isMinor: true,
    show: (one) => (
      <Text size="sm" component="div" lineClamp={1}>
        <Untrusted text={one.description} />
      </Text>
    ),
  },
  {
    key: "rule",
    title: "Allowed by",
    isMinor: true,
    width: "28%",
    show: (one) => (
      <Text size="sm" component="div" lineClamp={1}>
        <Prose text={one.rule} />
      </Text>
    ),
  },
  {
    key: "tokens",
    title: "Tokens",
    align: "right",
    width: 90,
    sortBy: (one) => one.tokens,
    show: (one) => count(one.tokens),
  },
];

function Sees({ id }: { readonly id: string }) {
  const query = useQuery(toolsQuery(id));
  const lens = (name: string) => `/scope?${new URLSearchParams({ task: id, why: name })}`;
  return (
    <Loaded query={query} what="Computing the scope">
      {(found) => (
        <Stack gap="sm">
          <Group gap="xs">
            <Text component="div">
              <Offered tools={found.tools.length} of={found.registered_tools} /> registered tools offered,{" "}
              {count(found.tokens)} of {count(found.registered_tokens)} tokens.
            </Text>
            {found.mode === "find" ? (
              <Text>Find mode: clients see three tools that find and call them.</Text>
            ) : null}
          </Group>
          <DataTable
            label="Tools offered"
            rows={found.tools}
            columns={COLUMNS}
            keyOf={(one) => one.name}
            hrefOf={(one) => lens(one.name)}
            sort={{ key: "name" }}
            empty={
              <Empty
                title="No tools in scope"
                firstStep={
                  <Button component={Link} to={`/scope?${new URLSearchParams({ task: id, show: "out" })}`}>
                    Open the scope lens
                  </Button>
                }
              >
                The scope lens shows the reason for each tool.
              </Empty>
            }
          />
        </Stack>
      )}
    </Loaded>
  );
}
