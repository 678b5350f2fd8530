/** The tasks that can be run, and the modules they run. */
import { Anchor, Button, Group, Tabs, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";
import type { Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { tasksQuery } from "@/api/records";
import { type Column, DataTable } from "@/parts/data-table";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { Modules } from "./modules";

type Task = Shapes["TaskShown"];

export function RunsHome() {
  const mayRead = useMay("viewer");
  return (
    <>
      <PageHead
        title="WASM tasks"
        about="Tasks with a WebAssembly program, which runs in a sandbox on a node."
      />
      {mayRead ? <Both /> : <ByName />}
    </>
  );
}

function Both() {
  const [query, setQuery] = useSearchParams();
  return (
    <Tabs
      value={query.get("tab") ?? "tasks"}
      onChange={(tab) => setQuery(tab === "modules" ? { tab } : {}, { replace: true })}
      keepMounted={false}
    >
      <Tabs.List mb="md">
        <Tabs.Tab value="tasks">Tasks</Tabs.Tab>
        <Tabs.Tab value="modules">Modules</Tabs.Tab>
      </Tabs.List>
      <Tabs.Panel value="tasks">
        <Runnable />
      </Tabs.Panel>
      <Tabs.Panel value="modules">
        <Modules />
      </Tabs.Panel>
    </Tabs>
  );
}

const COLUMNS: readonly Column<Task>[] = [
  {
    key: "task",
    title: "Task",
    show: (one) => <Untrusted text={one.task_id} mono />,
    sortBy: (one) => one.task_id,
  },
  {
    key: "name",
    title: "Name",
    show: (one) => <Untrusted text={one.display_name} />,
    sortBy: (one) => one.display_name,
  },
  {
    key: "module",
    title: "Module",
    show: (one) => <span className="mono">{one.workload?.module.slice(0, 12)}…</span>,
    isMinor: true,
  },
  {
    key: "retries",
    title: "Retries",
    show: (one) => (one.workload?.retries ? `up to ${one.workload.retries} times` : "never"),
    isMinor: true,
  },
];

function Runnable() {
  const tasks = useQuery(tasksQuery);
  return (
    <Loaded query={tasks} what="Loading the tasks">
      {(all) => (
        <DataTable
          label="Tasks with a workload"
          rows={all.filter((one) => one.workload != null)}
          columns={COLUMNS}
          keyOf={(one) => one.task_id}
          hrefOf={(one) => encodeURIComponent(one.task_id)}
          sort={{ key: "task" }}
          empty={
            <Empty title="No WASM tasks yet">
              Upload a module, then set its hash as the <span className="mono">workload</span> of a{" "}
              <Anchor component={Link} to="/tasks">
                task
              </Anchor>
              .
            </Empty>
          }
        />
      )}
    </Loaded>
  );
}

/** Agents may run tasks, and may not list them. */
function ByName() {
  const navigate = useNavigate();
  const [name, setName] = useState("");
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (name.trim() !== "") void navigate(encodeURIComponent(name.trim()));
      }}
    >
      <Group align="flex-end">
        <TextInput
          label="Task"
          description="A task that you may act for."
          value={name}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        <Button type="submit" disabled={name.trim() === ""}>
          Open
        </Button>
      </Group>
    </form>
  );
}
