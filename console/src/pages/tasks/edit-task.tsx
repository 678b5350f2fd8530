/** The task editor: every field of the record, and its plan. */
import { Accordion, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useLocation, useNavigate, useParams } from "react-router";
import { api, take } from "@/api/client";
import { SAVED } from "@/parts/leave-guard";
import { PageHead } from "@/parts/page-head";
import { MayWrite } from "@/parts/record-actions";
import { RecordEditor } from "@/parts/record-editor";
import { Loaded } from "@/parts/states";
import { TimeBudgetFields } from "@/parts/time-budgets";
import { Untrusted } from "@/parts/untrusted";
import { type Tagged, useDraft } from "@/parts/use-draft";
import { asPlanned } from "@/parts/use-writing";
import { ChatFields } from "./chat-fields";
import {
  type Body,
  bodyOf,
  type Draft,
  draftOf,
  NEW,
  otherKeys,
  type Picked,
  rebased,
  type Task,
  withPicked,
} from "./draft";
import { NameFields, OverrideFields, ProfileFields, ToolFields } from "./policy-fields";
import { taskQuery } from "./queries";
import { ServerPicks } from "./server-picks";
import { WorkloadFields } from "./workload-fields";

const TYPING = { draftOf, rebased };

export function NewTask() {
  const picked: Picked | undefined = useLocation().state?.picked;
  return (
    <MayWrite what="tasks" needs="publisher">
      <PageHead title="New task" about="Select the servers and tools for a kind of work." />
      <Editor saved={{ record: NEW, etag: "" }} proposed={picked ? withPicked(picked) : undefined} />
    </MayWrite>
  );
}

export function EditTask() {
  const { id = "" } = useParams();
  const query = useQuery(taskQuery(id));
  const { state } = useLocation();
  return (
    <MayWrite what="tasks" needs="publisher">
      <PageHead title={`Edit ${id}`} above={[{ title: id, path: `/tasks/${encodeURIComponent(id)}` }]} />
      <Loaded query={query} what="Loading the task">
        {(saved) => <Editor saved={saved} proposed={state?.learned} />}
      </Loaded>
    </MayWrite>
  );
}

function write(id: string, body: Body, etag: string, plan: string) {
  return take(
    api.PUT("/admin/api/tasks/{task_id}", {
      params: { path: { task_id: id }, header: asPlanned(plan, etag) },
      body,
    }),
  );
}

interface EditorProps {
  readonly saved: Tagged<Task>;
  /** Initial values instead of the stored ones, to review and save. */
  readonly proposed?: Partial<Task>;
}

function Editor({ saved, proposed }: EditorProps) {
  const navigate = useNavigate();
  const { base, draft, set, ...state } = useDraft<Task, Draft>(saved, TYPING, proposed);
  const isNew = saved.etag === "";
  const id = draft.task_id.trim();
  const body = bodyOf(draft, base.record);
  return (
    <RecordEditor
      change={{ kind: "task", id, body: { ...body } }}
      isNew={isNew}
      isDirty={state.isDirty}
      isOutdated={state.isOutdated}
      onRebase={state.rebase}
      save={(plan) => write(id, body, base.etag, plan)}
      onSaved={() => void navigate(`/tasks/${encodeURIComponent(id)}`, { state: SAVED })}
      onCancel={() => void navigate(isNew ? "/tasks" : `/tasks/${encodeURIComponent(id)}`)}
    >
      <NameFields draft={draft} set={set} isNew={isNew} />
      <ServerPicks picks={draft.picks} onChange={(picks) => set({ picks })} />
      <ToolFields draft={draft} set={set} />
      <ProfileFields draft={draft} set={set} />
      <Accordion variant="separated" multiple>
        <Section value="overrides" title="Overrides of the profile">
          <OverrideFields draft={draft} set={set} />
        </Section>
        <Section value="chat" title="Approvals and chat">
          <ChatFields draft={draft} set={set} />
        </Section>
        <Section value="spending" title="Rate limits and quotas">
          <Text size="sm">Shared by all callers of the task, across all nodes. Days are UTC.</Text>
          <TimeBudgetFields
            value={draft.spending}
            onChange={(spending) => set({ spending })}
            of="task.config.mcp.budgets"
          />
        </Section>
        <Section value="workload" title="Workload">
          <WorkloadFields draft={draft} set={set} />
        </Section>
        <Others task={base.record} />
      </Accordion>
    </RecordEditor>
  );
}

function Section({ value, title, children }: { value: string; title: string; children: React.ReactNode }) {
  return (
    <Accordion.Item value={value}>
      <Accordion.Control>{title}</Accordion.Control>
      <Accordion.Panel>
        <Stack gap="md">{children}</Stack>
      </Accordion.Panel>
    </Accordion.Item>
  );
}

/** Settings of other programs in the task. */
function Others({ task }: { readonly task: Task }) {
  const keys = otherKeys(task);
  if (keys.length === 0) return null;
  return (
    <Section value="others" title="Other settings">
      <Text size="sm">Toolgate does not use these and keeps them unchanged.</Text>
      {keys.map((key) => (
        <Text key={key} size="sm" component="div">
          <Untrusted text={key} mono /> = <Untrusted text={task.config[key] ?? ""} mono />
        </Text>
      ))}
    </Section>
  );
}
