/** The fields of a task that select its tools, apart from its servers. */
import { Anchor, Card, Select, Stack, Switch, Text, TextInput, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { useMe } from "@/api/me";
import { profilesQuery, serversQuery } from "@/api/records";
import { HelpLabel, type HelpOf } from "@/parts/help";
import { OptionalList, TextsField, ToolLists } from "@/parts/list-field";
import type { Draft, Overrides } from "./draft";

export interface FieldsProps {
  readonly draft: Draft;
  readonly set: (part: Partial<Draft>) => void;
}

export function NameFields({ draft, set, isNew }: FieldsProps & { readonly isNew: boolean }) {
  return (
    <Card withBorder padding="md">
      <Stack gap="sm">
        {isNew ? (
          <TextInput
            label={<HelpLabel of="task.task_id" label="Name" />}
            aria-label="Name"
            description="Part of the task's URL. Lower-case letters, digits and dashes."
            value={draft.task_id}
            onChange={(event) => set({ task_id: event.currentTarget.value })}
            required
            data-autofocus
            autoComplete="off"
          />
        ) : null}
        <TextInput
          label={<HelpLabel of="task.display_name" label="Title" />}
          aria-label="Title"
          description="Shown in lists next to the name."
          value={draft.display_name}
          onChange={(event) => set({ display_name: event.currentTarget.value })}
        />
        <Switch
          label={<HelpLabel of="task.config.mcp.enabled" label="Enabled" />}
          aria-label="Enabled"
          description="Off: the task has no tools."
          checked={draft.isEnabled}
          onChange={(event) => set({ isEnabled: event.currentTarget.checked })}
        />
        <Switch
          label={<HelpLabel of="task.config.mcp.enforce" label="Enforced" />}
          aria-label="Enforced"
          description="Off (shadow mode): its rules deny nothing; the activity shows what they would deny."
          checked={draft.isEnforced}
          onChange={(event) => set({ isEnforced: event.currentTarget.checked })}
        />
        <Switch
          label={<HelpLabel of="task.config.mcp.require_servers" label="Requires a server" />}
          aria-label="Requires a server"
          description="On: requests fail if no server is left. Off: they continue without tools, with a warning."
          checked={draft.requiresServers}
          onChange={(event) => set({ requiresServers: event.currentTarget.checked })}
        />
      </Stack>
    </Card>
  );
}

export function ToolFields({ draft, set }: FieldsProps) {
  return (
    <Card withBorder padding="md" component="section" aria-label="Allowed and denied tools">
      <Stack gap="md">
        <Title order={2} size="h4">
          Tools
        </Title>
        <ToolLists
          allow={draft.allow}
          deny={draft.deny}
          set={set}
          of={{ allow: "task.config.mcp.tool_allowlist", deny: "task.config.mcp.tool_denylist" }}
        />
      </Stack>
    </Card>
  );
}

export function ProfileFields({ draft, set }: FieldsProps) {
  const { environment } = useMe();
  const profiles = useQuery(profilesQuery).data ?? [];
  const ids = profiles.map((one) => one.profile_id);
  const chosen = profiles.find((one) => one.profile_id === draft.profile);
  const isOwn = chosen?.environments[environment] !== undefined;
  return (
    <Card withBorder padding="md" component="section" aria-label="Profile and tags">
      <Stack gap="md">
        <Title order={2} size="h4">
          Profile and tags
        </Title>
        <Select
          label={<HelpLabel of="task.config.mcp.profile" label="Profile" />}
          aria-label="Profile"
          description="A selection that several tasks share. It narrows the task's scope."
          placeholder="None"
          value={draft.profile}
          data={draft.profile === null || ids.includes(draft.profile) ? ids : [draft.profile, ...ids]}
          onChange={(profile) => set({ profile })}
          limit={50}
          searchable
          clearable
          clearButtonProps={{ "aria-label": "Clear: Profile" }}
        />
        {draft.profile === null ? null : (
          <Text size="sm">
            {chosen === undefined
              ? "Unknown profile: the task would have no tools."
              : `This gateway's environment is ${environment}. ${isOwn ? "The profile has a selection for it." : "The profile's common selection applies."} `}
            {chosen ? (
              <Anchor component={Link} size="sm" to={`/profiles/${encodeURIComponent(chosen.profile_id)}`}>
                Open the profile
              </Anchor>
            ) : null}
          </Text>
        )}
        <TagsList
          label="Only servers with one of these tags"
          of="task.config.mcp.tags"
          value={draft.tags}
          onChange={(tags) => set({ tags })}
        />
      </Stack>
    </Card>
  );
}

interface TagsListProps {
  readonly label: string;
  readonly of: HelpOf;
  readonly value: readonly string[] | null;
  readonly onChange: (value: string[] | null) => void;
}

export function TagsList(props: TagsListProps) {
  const tags = new Set((useQuery(serversQuery).data ?? []).flatMap((one) => one.tags));
  return <OptionalList {...props} known={[...tags].sort()} />;
}

export function OverrideFields({ draft, set }: FieldsProps) {
  const servers = (useQuery(serversQuery).data ?? []).map((one) => one.server_id);
  const { overrides } = draft;
  const change = (part: Partial<Overrides>) => set({ overrides: { ...overrides, ...part } });
  return (
    <>
      <Text size="sm">They narrow the profile further, for this task only.</Text>
      <OptionalList
        label="Overrides: only these servers"
        of="task.config.mcp.profile_overrides"
        value={overrides.server_ids}
        onChange={(server_ids) => change({ server_ids })}
        known={servers}
      />
      <TagsList
        label="Overrides: only servers with one of these tags"
        of="task.config.mcp.profile_overrides"
        value={overrides.tags}
        onChange={(tags) => change({ tags })}
      />
      <OptionalList
        label="Overrides: only these tools"
        of="task.config.mcp.profile_overrides"
        value={overrides.tool_allowlist}
        onChange={(tool_allowlist) => change({ tool_allowlist })}
        isPatterns
      />
      <TextsField
        label="Overrides: none of these tools"
        of="task.config.mcp.profile_overrides"
        value={overrides.tool_denylist ?? []}
        onChange={(denied) => change({ tool_denylist: denied.length > 0 ? denied : null })}
        isPatterns
        isDeny
      />
    </>
  );
}
