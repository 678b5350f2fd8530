/** The tasks that can be run, and the modules they run. */
import { Button, Group, Tabs, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";
import type { Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { tasksQuery } from "@/api/records";
import { type Column, DataTable } from "@/parts/data-table";
import { ClearFilters, FilterRow, useFilters } from "@/parts/filter-row";
import { hasWords } from "@/parts/filter-words";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { ago, bytes } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { Modules, modulesQuery } from "./modules";

type Task = Shapes["TaskShown"];
type Module = Shapes["ModuleShown"];

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

function columnsOf(modules: ReadonlyMap<string, Module>): readonly Column<Task>[] {
  return [
    {
      key: "task",
      title: "Task",
      sortBy: (one) => one.task_id,
      show: (one) => (
        <>
          <Text size="sm" fw={600} component="div">
            <Untrusted text={one.task_id} mono />
          </Text>
          <Text size="xs" c="dimmed" component="div">
            <Untrusted text={one.display_name} />
          </Text>
        </>
      ),
    },
    { key: "module", title: "Module", show: (one) => <ModuleOf task={one} modules={modules} /> },
    {
      key: "retries",
      title: "Retries",
      show: (one) => (one.workload?.retries ? `up to ${one.workload.retries} times` : "never"),
      isMinor: true,
    },
  ];
}

/** Whether it is there, how large it is and when it was uploaded: its hash tells no one anything. */
function ModuleOf({ task, modules }: { readonly task: Task; readonly modules: ReadonlyMap<string, Module> }) {
  const hash = task.workload?.module ?? "";
  const found = modules.get(hash);
  return (
    <Text size="sm" title={hash} component="div">
      {found ? (
        `${bytes(found.size)}, uploaded ${ago(found.at_ms)}`
      ) : modules.size > 0 ? (
        <Text span inherit c="var(--tone-bad)">
          not uploaded
        </Text>
      ) : (
        <span className="mono">{hash.slice(0, 12)}…</span>
      )}
    </Text>
  );
}

function Runnable() {
  const tasks = useQuery(tasksQuery);
  const modules = useQuery(modulesQuery).data?.modules ?? [];
  const { text } = useFilters();
  const byHash = new Map(modules.map((one) => [one.sha256, one]));
  return (
    <Loaded query={tasks} what="Loading the tasks">
      {(all) => {
        const runnable = all.filter((one) => one.workload != null);
        if (runnable.length === 0) return <NothingToRun hasModules={modules.length > 0} />;
        return (
          <>
            <FilterRow find="Find by name or title" />
            <DataTable
              label="Tasks with a workload"
              rows={runnable.filter((one) => hasWords(text, one.task_id, one.display_name))}
              columns={columnsOf(byHash)}
              keyOf={(one) => one.task_id}
              hrefOf={(one) => encodeURIComponent(one.task_id)}
              sort={{ key: "task" }}
              empty={<Empty title="No tasks match" firstStep={<ClearFilters names={[]} />} />}
            />
          </>
        );
      }}
    </Loaded>
  );
}

function NothingToRun({ hasModules }: { readonly hasModules: boolean }) {
  return (
    <Empty
      title="No WASM tasks yet"
      firstStep={
        hasModules ? (
          <Button component={Link} to="/tasks">
            Choose a task
          </Button>
        ) : (
          <Button component={Link} to="?tab=modules">
            Upload a module
          </Button>
        )
      }
    >
      {hasModules
        ? "Edit a task, and choose a module under Workload."
        : "Upload a module, then choose it as the workload of a task."}
    </Empty>
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
