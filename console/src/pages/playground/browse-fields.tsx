/** What the list of tools shows: words, server and task, all in the URL. */
import { useQuery } from "@tanstack/react-query";
import { useMay, useMe } from "@/api/me";
import { tasksQuery } from "@/api/records";
import { FilterRow, useFilters } from "@/parts/filter-row";
import { TaskChoice } from "@/parts/task-choice";
import { reachQuery } from "../catalog/queries";

const optionsOf = (names: readonly string[]) => names.map((one) => ({ value: one, label: one }));

export function BrowseFields() {
  const mayRead = useMay("viewer");
  const { ceiling } = useMe();
  const { of, set } = useFilters();
  const servers = useQuery(reachQuery).data?.map((one) => one.server_id) ?? [];
  const all = useQuery({ ...tasksQuery, enabled: mayRead }).data?.map((one) => one.task_id) ?? [];
  const tasks = mayRead ? all : ceiling.tasks;
  const selects = [{ name: "server", label: "Server", any: "Any server", data: optionsOf(servers) }];
  if (tasks) selects.push({ name: "task", label: "Task", any: "Any task", data: optionsOf(tasks) });
  return (
    <FilterRow find="Name or purpose of a tool" selects={selects}>
      {tasks ? null : <TaskChoice value={of("task")} onChange={(task) => set({ task })} />}
    </FilterRow>
  );
}
