/** The task of a call. Roles that may read the registry choose; others type a name. */
import { Select, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMay, useMe } from "@/api/me";
import { tasksQuery } from "@/api/records";
import { visibleText } from "@/parts/visible";

interface TaskChoiceProps {
  /** Empty: none. */
  readonly value: string;
  readonly onChange: (task: string) => void;
  readonly about: string;
}

export function TaskChoice({ value, onChange, about }: TaskChoiceProps) {
  const mayRead = useMay("viewer");
  const { ceiling } = useMe();
  const tasks = useQuery({ ...tasksQuery, enabled: mayRead }).data?.map((one) => one.task_id);
  const known = (mayRead ? tasks : ceiling.tasks) ?? null;
  if (known === null && !mayRead)
    return (
      <TextInput
        label="Task"
        description={about}
        placeholder="None"
        value={value}
        onChange={(event) => onChange(event.currentTarget.value.trim())}
        maw={320}
      />
    );
  const all = value === "" || known?.includes(value) ? (known ?? []) : [value, ...(known ?? [])];
  return (
    <Select
      label="Task"
      description={about}
      placeholder="None"
      data={all.map((one) => ({ value: one, label: visibleText(one) }))}
      value={value || null}
      onChange={(task) => onChange(task ?? "")}
      searchable
      clearable
      clearButtonProps={{ "aria-label": "Clear task" }}
      limit={50}
      maw={320}
    />
  );
}
