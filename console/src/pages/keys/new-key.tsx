/** The form of a new key, then its secret, once. */
import { Autocomplete, Button, Fieldset, Group, NativeSelect, Stack, TextInput } from "@mantine/core";
import { useForm } from "@mantine/form";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { useMay } from "@/api/me";
import { serversQuery, tasksQuery } from "@/api/records";
import { LeaveGuard, SAVED } from "@/parts/leave-guard";
import { OptionalList, ToolLists } from "@/parts/list-field";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure } from "@/parts/states";
import { TimeBudgetFields } from "@/parts/time-budgets";
import { visibleText } from "@/parts/visible";
import { INTEGRATIONS, type KeyDraft, type KeyRole, keyBody, keyProblems, NEW_KEY, ROLES } from "./key-draft";
import { CHANGED } from "./queries";
import { SecretShown } from "./secret-shown";

/** At most this many suggestions; typing finds the others. */
const MOST = 20;

export function NewKey() {
  const mayWrite = useMay("admin");
  const navigate = useNavigate();
  const [made, setMade] = useState<Shapes["KeyMade"] | null>(null);
  return (
    <>
      <PageHead title="New key" about="The gateway generates the secret and shows it once." />
      {mayWrite ? (
        <KeyForm onMade={setMade} />
      ) : (
        <Empty title="Only admins can create keys">Ask an admin.</Empty>
      )}
      {made === null ? null : (
        <SecretShown
          made={made}
          onStored={() =>
            void navigate(`/keys/${encodeURIComponent(made.key_id)}`, { replace: true, state: SAVED })
          }
        />
      )}
    </>
  );
}

function KeyForm({ onMade }: { readonly onMade: (made: Shapes["KeyMade"]) => void }) {
  const queries = useQueryClient();
  const tasks = useQuery(tasksQuery);
  const form = useForm<KeyDraft>({
    initialValues: NEW_KEY,
    validate: (draft) => keyProblems(draft, Date.now()),
  });
  const make = useMutation({
    mutationFn: (draft: KeyDraft) => take(api.POST("/admin/api/keys", { body: keyBody(draft) })),
    // Invariant: only the component that shows the secret holds it.
    gcTime: 0,
    onSuccess: (made) => {
      onMade(made);
      for (const queryKey of CHANGED) void queries.invalidateQueries({ queryKey });
    },
  });
  return (
    <form onSubmit={form.onSubmit((draft) => make.mutate(draft))}>
      <LeaveGuard isDirty={form.isDirty()} />
      <Stack maw={720}>
        <TextInput
          label="Name"
          description="Identifies the caller in the audit log."
          withAsterisk
          autoComplete="off"
          data-autofocus
          {...form.getInputProps("keyId")}
        />
        <NativeSelect
          label="Role"
          description="What the key may do; at most your own role."
          data={[...ROLES]}
          value={form.values.role}
          onChange={(event) => form.setFieldValue("role", event.currentTarget.value as KeyRole)}
        />
        <Ceiling
          draft={form.values}
          set={form.setValues}
          tasks={(tasks.data ?? []).map((one) => one.task_id)}
        />
        <Autocomplete
          label="Default task"
          description="Used for requests that name no task."
          data={(tasks.data ?? []).map((one) => one.task_id)}
          limit={MOST}
          renderOption={({ option }) => visibleText(option.value)}
          {...form.getInputProps("defaultTask")}
        />
        <NativeSelect
          label="Default for integrations"
          description="Applies until the caller switches servers on or off."
          data={[...INTEGRATIONS]}
          value={form.values.integrations}
          onChange={(event) =>
            form.setFieldValue("integrations", event.currentTarget.value as KeyDraft["integrations"])
          }
        />
        <TextInput
          type="date"
          label="Valid through"
          description="The key expires at the end of this day, in your time zone. Empty: never."
          maw={240}
          {...form.getInputProps("lastDay")}
        />
        <Fieldset legend="Rate limits and quotas">
          <TimeBudgetFields
            value={form.values.budgets}
            onChange={(budgets) => form.setFieldValue("budgets", budgets)}
          />
        </Fieldset>
        {make.isError ? <Failure error={make.error} /> : null}
        <Group>
          <Button type="submit" loading={make.isPending}>
            Create key
          </Button>
          <Button variant="default" component={Link} to="/keys">
            Cancel
          </Button>
        </Group>
      </Stack>
    </form>
  );
}

interface CeilingProps {
  readonly draft: KeyDraft;
  readonly set: (part: Partial<KeyDraft>) => void;
  readonly tasks: readonly string[];
}

function Ceiling({ draft, set, tasks }: CeilingProps) {
  const servers = useQuery(serversQuery);
  return (
    <Fieldset legend="Ceiling: the most this key may ever reach">
      <Stack>
        <OptionalList
          label="Only these tasks"
          value={draft.tasks}
          onChange={(chosen) => set({ tasks: chosen })}
          known={tasks}
        />
        <OptionalList
          label="Only these servers"
          value={draft.servers}
          onChange={(chosen) => set({ servers: chosen })}
          known={(servers.data ?? []).map((one) => one.server_id)}
        />
        <ToolLists allow={draft.allow} deny={draft.deny} set={set} />
      </Stack>
    </Fieldset>
  );
}
