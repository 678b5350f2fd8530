/** The fields of a hand-over: for whom, which task, which limits, which client. */
import {
  Anchor,
  Card,
  NativeSelect,
  SegmentedControl,
  Select,
  SimpleGrid,
  Stack,
  Text,
  TextInput,
  Title,
} from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import type { Client } from "@/parts/client-setup";
import { ClientChoice } from "@/parts/connect-panel";
import { count } from "@/parts/time";
import { TimeBudgetFields } from "@/parts/time-budgets";
import { visibleText } from "@/parts/visible";
import {
  type HandOverDraft,
  type Known,
  keyIdOf,
  LIFETIMES,
  type Problems,
  taskIdOf,
} from "./hand-over-draft";

interface FieldsProps {
  readonly draft: HandOverDraft;
  readonly set: (part: Partial<HandOverDraft>) => void;
  readonly known: Known;
  readonly problems: Problems;
  /** The number of picks in the catalog. */
  readonly picked: number;
  readonly clients: readonly Client[];
}

export function Fields(props: FieldsProps) {
  const { draft, set, known, problems, clients } = props;
  return (
    <Stack gap="md">
      <Part title="For whom">
        <SimpleGrid cols={{ base: 1, sm: 2 }}>
          <TextInput
            label="Person or program"
            placeholder="Ada, or the CI of shop"
            withAsterisk
            autoComplete="off"
            maxLength={120}
            value={draft.who}
            onChange={(event) => set({ who: event.currentTarget.value })}
            error={problems.who}
          />
          <TextInput
            label="Name of the key"
            description="Identifies the caller in the audit log."
            inputWrapperOrder={["label", "input", "description", "error"]}
            autoComplete="off"
            value={draft.keyId ?? keyIdOf(draft, known)}
            onChange={(event) => set({ keyId: event.currentTarget.value || null })}
            error={problems.keyId}
          />
        </SimpleGrid>
      </Part>
      <Part title="Which tools">
        <TaskFields {...props} />
      </Part>
      <Part title="Until when, and how much">
        <NativeSelect
          label="Expires"
          value={draft.days}
          data={LIFETIMES.map(({ value, label }) => ({ value, label: value === "" ? label : `in ${label}` }))}
          onChange={(event) => set({ days: event.currentTarget.value })}
          maw={220}
        />
        <TimeBudgetFields value={draft.budgets} onChange={(budgets) => set({ budgets })} />
      </Part>
      <Part title="Which client">
        <ClientChoice
          clients={clients}
          value={clients.some((one) => one.id === draft.client) ? draft.client : (clients[0]?.id ?? "")}
          onChange={(client) => set({ client })}
        />
        <NativeSelect
          label="Their computer"
          description="For the path of the settings file."
          inputWrapperOrder={["label", "input", "description"]}
          value={draft.platform}
          data={[
            { value: "linux", label: "Linux" },
            { value: "darwin", label: "macOS" },
          ]}
          onChange={(event) => set({ platform: event.currentTarget.value === "darwin" ? "darwin" : "linux" })}
          maw={220}
        />
      </Part>
    </Stack>
  );
}

function Part({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  return (
    <Card withBorder component="section" aria-label={title}>
      <Stack gap="sm">
        <Title order={2} size="h5">
          {title}
        </Title>
        {children}
      </Stack>
    </Card>
  );
}

function TaskFields({ draft, set, known, problems, picked }: FieldsProps) {
  return (
    <>
      <SegmentedControl
        aria-label="Tools of"
        value={draft.from}
        data={[
          { value: "task", label: "A task" },
          { value: "picks", label: "Picked tools" },
        ]}
        onChange={(from) => set({ from: from === "picks" ? "picks" : "task" })}
        style={{ alignSelf: "flex-start" }}
      />
      {draft.from === "task" ? (
        <Select
          label="Task"
          description="The key reaches this task and nothing else."
          inputWrapperOrder={["label", "input", "description", "error"]}
          placeholder="Choose a task"
          withAsterisk
          data={[...known.tasks].map((one) => ({ value: one, label: visibleText(one) }))}
          value={draft.task || null}
          onChange={(task) => set({ task: task ?? "" })}
          searchable
          limit={50}
          nothingFoundMessage="No matches. Choose Picked tools to make a task."
          error={problems.task}
        />
      ) : (
        <>
          <Text size="sm" component="div">
            {picked === 0
              ? "No tools are picked. "
              : `${count(picked)} ${picked === 1 ? "pick" : "picks"} in this tab. `}
            <Anchor component={Link} to={picked === 0 ? "/catalog" : "/catalog/picked"}>
              {picked === 0 ? "Pick tools in the catalog" : "Change the picks"}
            </Anchor>{" "}
            and come back: what you typed here stays.
          </Text>
          {problems.task ? (
            <Text size="sm" c="var(--mantine-color-error)" role="alert">
              {problems.task}
            </Text>
          ) : null}
          <TextInput
            label="Name of the new task"
            description="A task with exactly the picked tools."
            inputWrapperOrder={["label", "input", "description", "error"]}
            autoComplete="off"
            value={draft.newTask ?? taskIdOf(draft, known)}
            onChange={(event) => set({ newTask: event.currentTarget.value || null })}
            error={problems.newTask}
          />
        </>
      )}
    </>
  );
}
