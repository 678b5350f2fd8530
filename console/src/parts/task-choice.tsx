/** The task of a call. Roles that may read the registry choose; others type a name. */
import { Select } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMay, useMe } from "@/api/me";
import { tasksQuery } from "@/api/records";
import { SettledInput } from "@/parts/settled-input";
import { visibleText } from "@/parts/visible";

interface TaskChoiceProps {
  /** Empty: none. */
  readonly value: string;
  readonly onChange: (task: string) => void;
  /** Without it, the field has no visible label, as in a row of filters. */
  readonly about?: string;
}

export function TaskChoice({ value, onChange, about }: TaskChoiceProps) {
  const mayRead = useMay("viewer");
  const { ceiling } = useMe();
  const tasks = useQuery({ ...tasksQuery, enabled: mayRead }).data?.map((one) => one.task_id);
  const known = (mayRead ? tasks : ceiling.tasks) ?? null;
  const words =
    about === undefined
      ? { "aria-label": "Task", placeholder: "Any task", w: 180 }
      : { label: "Task", description: about, placeholder: "None", maw: 320 };
  if (known === null && !mayRead)
    return <SettledInput {...words} value={value} onChange={(task) => onChange(task.trim())} />;
  const all = value === "" || known?.includes(value) ? (known ?? []) : [value, ...(known ?? [])];
  const none = { value: "", label: words.placeholder };
  return (
    <Select
      {...words}
      data={[none, ...all.map((one) => ({ value: one, label: visibleText(one) }))]}
      value={value}
      onChange={(task) => onChange(task ?? "")}
      searchable
      allowDeselect={false}
      limit={50}
      nothingFoundMessage="No matches"
    />
  );
}
