/** The selection of the lens: a task, a key, and the request's parameters. */
import {
  Autocomplete,
  Group,
  SegmentedControl,
  Select,
  SimpleGrid,
  Stack,
  TagsInput,
  Text,
} from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useMay, useMe } from "@/api/me";
import { keysQuery, profilesQuery, serversQuery, tasksQuery } from "@/api/records";
import { UNTRUSTED_TAGS } from "@/parts/list-field";
import type { Selection } from "./selection";

/** So many choices are offered at once; more are found by typing. */
const MOST = 50;

interface PickerProps {
  readonly selection: Selection;
  readonly select: (part: Partial<Selection>) => void;
}

export function Picker(props: PickerProps) {
  const knowsAll = useMay("viewer");
  return knowsAll ? <WholePicker {...props} /> : <OwnPicker {...props} />;
}

/** For roles that may read the registry: all values are offered. */
function WholePicker({ selection, select }: PickerProps) {
  const isAdmin = useMay("admin");
  const tasks = useQuery(tasksQuery).data?.map((one) => one.task_id) ?? [];
  const servers = useQuery(serversQuery).data?.map((one) => one.server_id) ?? [];
  const profiles = useQuery(profilesQuery).data?.map((one) => one.profile_id) ?? [];
  const keys = useQuery({ ...keysQuery, enabled: isAdmin }).data?.map((one) => one.key_id) ?? [];
  return (
    <Stack gap="sm">
      <SimpleGrid cols={{ base: 1, xs: 2, md: isAdmin ? 3 : 2 }}>
        <Choice
          label="Task"
          none="No task"
          value={selection.task}
          known={tasks}
          onChange={(task) => select({ task })}
        />
        {isAdmin ? (
          <Choice
            label="Key"
            none="Your key"
            value={selection.key}
            known={keys}
            onChange={(key) => select({ key })}
          />
        ) : null}
        <Choice
          label="Request profile"
          none="None"
          value={selection.profile}
          known={profiles}
          onChange={(profile) => select({ profile })}
        />
      </SimpleGrid>
      <RequestFields selection={selection} select={select} servers={servers} />
    </Stack>
  );
}

/** For agents, which see only their own scope: they type the names. */
function OwnPicker({ selection, select }: PickerProps) {
  const { ceiling } = useMe();
  return (
    <Stack gap="sm">
      <SimpleGrid cols={{ base: 1, xs: 2 }}>
        <Typed
          label="Task"
          value={selection.task}
          known={ceiling.tasks ?? []}
          onChange={(task) => select({ task })}
        />
        <Typed
          label="Request profile"
          value={selection.profile}
          known={[]}
          onChange={(profile) => select({ profile })}
        />
      </SimpleGrid>
      <RequestFields selection={selection} select={select} servers={ceiling.servers ?? []} />
    </Stack>
  );
}

interface ChoiceProps {
  readonly label: string;
  readonly value: string | null;
  readonly known: readonly string[];
  readonly onChange: (value: string | null) => void;
}

/** An unknown value stays: it may come from a shared URL. */
function Choice({ label, none, value, known, onChange }: ChoiceProps & { readonly none: string }) {
  const data = value === null || known.includes(value) ? known : [value, ...known];
  return (
    <Select
      label={label}
      placeholder={none}
      value={value}
      data={[...data]}
      onChange={onChange}
      limit={MOST}
      searchable
      clearable
      clearButtonProps={{ "aria-label": `Clear: ${label}` }}
      nothingFoundMessage="No matches"
    />
  );
}

function Typed({ label, value, known, onChange }: ChoiceProps) {
  const [text, setText] = useState(value ?? "");
  const settle = (typed: string) => onChange(typed.trim() || null);
  return (
    <Autocomplete
      label={label}
      placeholder="None"
      value={text}
      data={[...known]}
      limit={MOST}
      onChange={setText}
      onOptionSubmit={settle}
      onBlur={() => settle(text)}
      onKeyDown={(event) => (event.key === "Enter" ? settle(text) : undefined)}
    />
  );
}

function RequestFields({
  selection,
  select,
  servers,
}: PickerProps & { readonly servers: readonly string[] }) {
  const asksNothing = selection.servers?.length === 0 || selection.tools?.length === 0;
  return (
    <>
      <SimpleGrid cols={{ base: 1, md: 2 }}>
        <TagsInput
          {...UNTRUSTED_TAGS}
          label="Request servers"
          placeholder={selection.servers?.length ? "" : "The task's default"}
          value={[...(selection.servers ?? [])]}
          data={[...servers]}
          limit={MOST}
          onChange={(ids) => select({ servers: ids.length > 0 ? ids : null })}
          clearable
        />
        <TagsInput
          {...UNTRUSTED_TAGS}
          label="Request tools"
          placeholder={selection.tools?.length ? "" : "All; or patterns such as git.git_*"}
          value={[...(selection.tools ?? [])]}
          onChange={(patterns) => select({ tools: patterns.length > 0 ? patterns : null })}
          clearable
        />
      </SimpleGrid>
      <Group gap="sm">
        <SegmentedControl
          aria-label="Tool listing mode"
          size="xs"
          value={selection.mode ?? ""}
          data={[
            { value: "", label: "Default" },
            { value: "list", label: "Listed" },
            { value: "find", label: "Find mode" },
          ]}
          onChange={(mode) => select({ mode: mode === "list" || mode === "find" ? mode : null })}
        />
        {asksNothing ? <Text size="sm">The request's list is empty: it selects nothing.</Text> : null}
      </Group>
    </>
  );
}
