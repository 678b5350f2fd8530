/** The profile editor: a common selection, and one for each environment that differs. */
import { Button, Card, Stack, Switch, Tabs, Text, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate, useParams } from "react-router";
import { api, take } from "@/api/client";
import { useMe } from "@/api/me";
import { serversQuery } from "@/api/records";
import { HelpLabel } from "@/parts/help";
import { SAVED } from "@/parts/leave-guard";
import { OptionalList, ToolLists } from "@/parts/list-field";
import { PageHead } from "@/parts/page-head";
import { MayWrite } from "@/parts/record-actions";
import { RecordEditor } from "@/parts/record-editor";
import { Loaded } from "@/parts/states";
import { type Tagged, useDraft } from "@/parts/use-draft";
import { asPlanned } from "@/parts/use-writing";
import {
  type Body,
  bodyOf,
  type Draft,
  draftOf,
  ENVIRONMENTS,
  type Environment,
  NEW,
  OPEN,
  type Profile,
  rebased,
  type Selection,
} from "./draft";
import { profileQuery } from "./queries";

const TYPING = { draftOf, rebased };

export function NewProfile() {
  return (
    <MayWrite what="profiles" needs="publisher">
      <PageHead title="New profile" about="Select what the tasks that use this profile may see." />
      <Editor saved={{ record: NEW, etag: "" }} />
    </MayWrite>
  );
}

export function EditProfile() {
  const { id = "" } = useParams();
  const query = useQuery(profileQuery(id));
  return (
    <MayWrite what="profiles" needs="publisher">
      <PageHead title={`Edit ${id}`} above={[{ title: id, path: `/profiles/${encodeURIComponent(id)}` }]} />
      <Loaded query={query} what="Loading the profile">
        {(saved) => <Editor saved={saved} />}
      </Loaded>
    </MayWrite>
  );
}

function write(id: string, body: Body, etag: string, plan: string) {
  return take(
    api.PUT("/admin/api/profiles/{profile_id}", {
      params: { path: { profile_id: id }, header: asPlanned(plan, etag) },
      body,
    }),
  );
}

function Editor({ saved }: { readonly saved: Tagged<Profile> }) {
  const navigate = useNavigate();
  const { base, draft, set, ...state } = useDraft<Profile, Draft>(saved, TYPING);
  const isNew = saved.etag === "";
  const id = draft.profile_id.trim();
  const body = bodyOf(draft);
  return (
    <RecordEditor
      change={{ kind: "profile", id, body: { ...body } }}
      isNew={isNew}
      isDirty={state.isDirty}
      isOutdated={state.isOutdated}
      onRebase={state.rebase}
      save={(plan) => write(id, body, base.etag, plan)}
      onSaved={() => void navigate(`/profiles/${encodeURIComponent(id)}`, { state: SAVED })}
      onCancel={() => void navigate(isNew ? "/profiles" : `/profiles/${encodeURIComponent(id)}`)}
    >
      {isNew ? (
        <TextInput
          label={<HelpLabel of="profile.profile_id" label="Name" />}
          aria-label="Name"
          description="Tasks refer to it by this name. Lower-case letters, digits and dashes."
          value={draft.profile_id}
          onChange={(event) => set({ profile_id: event.currentTarget.value })}
          required
          autoComplete="off"
        />
      ) : null}
      <Selections draft={draft} set={set} />
    </RecordEditor>
  );
}

interface FieldsProps {
  readonly draft: Draft;
  readonly set: (part: Partial<Draft>) => void;
}

/** The common selection, and a tab for each environment. */
function Selections({ draft, set }: FieldsProps) {
  const { environment } = useMe();
  const [tab, setTab] = useState<string | null>("common");
  return (
    <Card withBorder padding="md">
      <Tabs value={tab} onChange={setTab}>
        <Tabs.List mb="md">
          <Tabs.Tab value="common">Common</Tabs.Tab>
          {ENVIRONMENTS.map((name) => (
            <Tabs.Tab key={name} value={name}>
              {name}
              {name === environment ? " (here)" : null}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value="common">
          {tab === "common" ? (
            <SelectionFields selection={draft.common} onChange={(common) => set({ common })} />
          ) : null}
        </Tabs.Panel>
        {ENVIRONMENTS.map((name) => (
          <Tabs.Panel key={name} value={name}>
            {tab === name ? <EnvironmentFields name={name} draft={draft} set={set} /> : null}
          </Tabs.Panel>
        ))}
      </Tabs>
    </Card>
  );
}

function EnvironmentFields({ name, draft, set }: FieldsProps & { readonly name: Environment }) {
  const selection = draft.environments[name];
  const change = (own: Selection | null) => set({ environments: { ...draft.environments, [name]: own } });
  return (
    <Stack gap="md">
      <Switch
        label={<HelpLabel of="profile.environments" label={`Separate selection for ${name}`} />}
        aria-label={`Separate selection for ${name}`}
        description="It replaces the common selection there entirely."
        checked={selection !== null}
        onChange={(event) => change(event.currentTarget.checked ? OPEN : null)}
      />
      {selection === null ? (
        <Text size="sm">The common selection applies in {name}.</Text>
      ) : (
        <>
          <Button
            size="xs"
            variant="default"
            onClick={() => change(draft.common)}
            style={{ alignSelf: "flex-start" }}
          >
            Start from the common selection
          </Button>
          <SelectionFields selection={selection} onChange={change} />
        </>
      )}
    </Stack>
  );
}

interface SelectionFieldsProps {
  readonly selection: Selection;
  readonly onChange: (selection: Selection) => void;
}

function SelectionFields({ selection, onChange }: SelectionFieldsProps) {
  const servers = useQuery(serversQuery).data ?? [];
  const tags = new Set(servers.flatMap((one) => one.tags));
  const change = (part: Partial<Selection>) => onChange({ ...selection, ...part });
  return (
    <Stack gap="md">
      <OptionalList
        label="Only these servers"
        about="By server ID."
        of="profile.servers"
        value={selection.servers}
        onChange={(ids) => change({ servers: ids })}
        known={servers.map((one) => one.server_id)}
      />
      <OptionalList
        label="Only servers with one of these tags"
        of="profile.tags"
        value={selection.tags}
        onChange={(chosen) => change({ tags: chosen })}
        known={[...tags].sort()}
      />
      <ToolLists
        allow={selection.allow}
        deny={selection.deny}
        set={change}
        on={selection}
        of={{ allow: "profile.allow", deny: "profile.deny" }}
      />
    </Stack>
  );
}
