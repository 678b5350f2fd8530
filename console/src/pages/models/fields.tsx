/** The fields of a chat upstream. */
import {
  ActionIcon,
  Button,
  Fieldset,
  Group,
  NativeSelect,
  NumberInput,
  SimpleGrid,
  Stack,
  Switch,
  TextInput,
} from "@mantine/core";
import { IconPlus, IconTrash } from "@tabler/icons-react";
import { HelpLabel } from "@/parts/help";
import { TextsField } from "@/parts/list-field";
import { BUDGETS, type Draft, type Header, NUMBERS } from "./draft";

interface FieldsProps {
  readonly draft: Draft;
  readonly set: (part: Partial<Draft>) => void;
}

export function Fields({ draft, set, isNew }: FieldsProps & { readonly isNew: boolean }) {
  return (
    <Stack>
      {isNew ? (
        <TextInput
          label={<HelpLabel of="chat_upstream.upstream_id" label="Name" />}
          aria-label="Name"
          description="Clients can request NAME/MODEL to select this upstream."
          value={draft.upstream_id}
          onChange={(event) => set({ upstream_id: event.currentTarget.value })}
          required
          autoComplete="off"
        />
      ) : null}
      <TextInput
        label={<HelpLabel of="chat_upstream.display_name" label="Display name" />}
        aria-label="Display name"
        description="Shown in lists instead of the name."
        value={draft.display_name}
        onChange={(event) => set({ display_name: event.currentTarget.value })}
      />
      <TextInput
        label={<HelpLabel of="chat_upstream.base_url" label="URL" />}
        aria-label="URL"
        description="The base URL before /chat/completions, /responses and /models. A query stays at the end."
        placeholder="https://api.openai.com/v1"
        value={draft.base_url}
        onChange={(event) => set({ base_url: event.currentTarget.value })}
        required
      />
      <TextsField
        label="Models"
        of="chat_upstream.models"
        about="Model names that this upstream serves; * and ? are wildcards."
        value={draft.models}
        onChange={(models) => set({ models })}
      />
      <Switch
        label={<HelpLabel of="chat_upstream.enabled" label="Enabled" />}
        aria-label="Enabled"
        checked={draft.enabled}
        onChange={(event) => set({ enabled: event.currentTarget.checked })}
      />
      <Credentials draft={draft} set={set} />
      <Behaviour draft={draft} set={set} />
      <Limits draft={draft} set={set} />
    </Stack>
  );
}

function Credentials({ draft, set }: FieldsProps) {
  const change = (place: number, part: Partial<Header>) =>
    set({ headers: draft.headers.map((one, at) => (at === place ? { ...one, ...part } : one)) });
  return (
    <Fieldset legend="Authentication">
      <Stack>
        <TextInput
          label={<HelpLabel of="chat_upstream.auth_ref" label="Secret" />}
          aria-label="Secret"
          description="The secret's name in secrets_dir or the environment, sent as a bearer token. Do not enter the secret itself."
          placeholder="OPENAI_API_KEY"
          value={draft.auth_ref}
          onChange={(event) => set({ auth_ref: event.currentTarget.value })}
          autoComplete="off"
        />
        {draft.headers.map((one, place) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a header is typed in its place
          <Group key={place} align="flex-end" wrap="nowrap">
            <TextInput
              label={<HelpLabel of="chat_upstream.headers" label="Header" />}
              aria-label="Header"
              value={one.name}
              onChange={(event) => change(place, { name: event.currentTarget.value })}
            />
            <TextInput
              label="Value"
              placeholder="${ENV:NAME}"
              value={one.value}
              onChange={(event) => change(place, { value: event.currentTarget.value })}
              style={{ flex: 1 }}
            />
            <ActionIcon
              variant="default"
              size="lg"
              aria-label="Remove the header"
              onClick={() => set({ headers: draft.headers.filter((_, at) => at !== place) })}
            >
              <IconTrash size={16} />
            </ActionIcon>
          </Group>
        ))}
        <Button
          variant="default"
          size="xs"
          leftSection={<IconPlus size={14} />}
          onClick={() => set({ headers: [...draft.headers, { name: "", value: "" }] })}
          style={{ alignSelf: "flex-start" }}
        >
          Add a header
        </Button>
      </Stack>
    </Fieldset>
  );
}

function Behaviour({ draft, set }: FieldsProps) {
  return (
    <Fieldset legend="Tools">
      <Stack>
        <NativeSelect
          label={<HelpLabel of="chat_upstream.mode" label="Mode" />}
          aria-label="Mode"
          data={[
            { value: "inject", label: "inject: the gateway offers and runs tools" },
            { value: "passthrough", label: "passthrough: the gateway runs no tools" },
          ]}
          value={draft.mode}
          onChange={(event) => set({ mode: event.currentTarget.value as Draft["mode"] })}
        />
        <NativeSelect
          label={<HelpLabel of="chat_upstream.name_profile" label="Tool names" />}
          aria-label="Tool names"
          data={[
            { value: "default", label: "default" },
            { value: "identifier", label: "identifier: without hyphens" },
          ]}
          value={draft.name_profile}
          onChange={(event) => set({ name_profile: event.currentTarget.value as Draft["name_profile"] })}
        />
        <NativeSelect
          label={<HelpLabel of="chat_upstream.other_tools" label="Tools other than functions" />}
          aria-label="Tools other than functions"
          data={[
            { value: "pass", label: "pass unchanged" },
            { value: "refuse", label: "reject the request" },
          ]}
          value={draft.other_tools}
          onChange={(event) => set({ other_tools: event.currentTarget.value as Draft["other_tools"] })}
        />
        <Switch
          label={<HelpLabel of="chat_upstream.filter_undeclared_calls" label="Filter undeclared calls" />}
          aria-label="Filter undeclared calls"
          description="Drop tool calls that the request does not declare, with or without a task."
          checked={draft.filter_undeclared_calls}
          onChange={(event) => set({ filter_undeclared_calls: event.currentTarget.checked })}
        />
      </Stack>
    </Fieldset>
  );
}

function Limits({ draft, set }: FieldsProps) {
  return (
    <Fieldset legend="Limits">
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        {NUMBERS.map(({ name, label, about, ...rest }) => (
          <NumberInput
            key={name}
            {...rest}
            label={<HelpLabel of={`chat_upstream.${name}`} label={label} />}
            aria-label={label}
            description={about}
            thousandSeparator=","
            allowDecimal={false}
            value={draft[name]}
            onChange={(value) => set({ [name]: Number(value) })}
          />
        ))}
        {BUDGETS.map(({ name, label, about, ...rest }) => (
          <NumberInput
            key={name}
            {...rest}
            label={<HelpLabel of={`chat_upstream.budgets.${name}`} label={label} />}
            aria-label={label}
            description={about}
            thousandSeparator=","
            allowDecimal={false}
            value={draft.budgets[name]}
            onChange={(value) => set({ budgets: { ...draft.budgets, [name]: Number(value) } })}
          />
        ))}
      </SimpleGrid>
    </Fieldset>
  );
}
