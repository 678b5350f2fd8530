/** A form made from a JSON schema. */
import { Button, Fieldset, Group, Select, Stack, Switch, Text } from "@mantine/core";
import { IconPlus, IconTrash } from "@tabler/icons-react";
import { blankOf, startOf } from "./schema-form-draft";
import { About, type InputProps, labelOf, type Of, SimpleField } from "./schema-form-inputs";
import type { Member } from "./schema-form-model";
import { type Draft, placeOf } from "./schema-form-write";
import { visibleText } from "./visible";

/** One field, with all that is below it. */
export function SchemaField(props: InputProps) {
  const { field } = props;
  if (field.kind === "group") return <GroupField {...props} field={field} />;
  if (field.kind === "list") return <ListField {...props} field={field} />;
  if (field.kind === "variants") return <VariantsField {...props} field={field} />;
  return <SimpleField {...props} field={field} />;
}

interface MembersProps extends Pick<InputProps, "at" | "troubles"> {
  readonly members: readonly Member[];
  readonly drafts: readonly Draft[];
  readonly onChange: (drafts: Draft[]) => void;
}

/** The members of an object, those that are needed first. */
export function MemberFields({ members, drafts, onChange, at, troubles }: MembersProps) {
  const order = members.map((_one, index) => index);
  order.sort((a, b) => Number(members[b]?.isRequired) - Number(members[a]?.isRequired) || a - b);
  return (
    <Stack gap="sm">
      {order.map((index) => {
        const member = members[index] as Member;
        return (
          <SchemaField
            key={member.name}
            field={member.field}
            label={visibleText(member.name)}
            isRequired={member.isRequired}
            draft={drafts[index] ?? null}
            onChange={(draft) =>
              onChange(members.map((_one, i) => (i === index ? draft : (drafts[i] ?? null))))
            }
            at={placeOf(at, member.name)}
            troubles={troubles}
          />
        );
      })}
    </Stack>
  );
}

function GroupField(props: InputProps & { readonly field: Of<"group"> }) {
  const { field, draft, onChange, at, isRequired, label } = props;
  const drafts = draft && "members" in draft ? draft.members : null;
  const isFixed = isRequired && !field.isNullable;
  return (
    <Fieldset legend={labelOf(props)}>
      <Stack gap="sm">
        <About field={field} />
        {isFixed ? null : (
          <Switch
            label={`Give ${label}`}
            checked={drafts !== null}
            onChange={(event) => onChange(event.currentTarget.checked ? blankOf(field) : null)}
          />
        )}
        {drafts ? (
          <MemberFields
            members={field.members}
            drafts={drafts}
            onChange={(members) => onChange({ members })}
            at={at}
            troubles={props.troubles}
          />
        ) : null}
        <Trouble {...props} />
      </Stack>
    </Fieldset>
  );
}

function ListField(props: InputProps & { readonly field: Of<"list"> }) {
  const { field, draft, onChange, at, label } = props;
  const items = draft && "items" in draft ? draft.items : [];
  const add = () => {
    const id = Math.max(-1, ...items.map((one) => one.id)) + 1;
    onChange({ items: [...items, { id, of: startOf(field.item, true) }] });
  };
  return (
    <Fieldset legend={labelOf(props)}>
      <Stack gap="sm">
        <About field={field} />
        {items.map((entry, place) => (
          <Group key={entry.id} align="flex-end" wrap="nowrap" gap="xs">
            <Stack style={{ flex: 1 }} gap={0}>
              <SchemaField
                field={field.item}
                label={`${label} ${place + 1}`}
                isRequired
                draft={entry.of}
                onChange={(of) =>
                  onChange({ items: items.map((one) => (one === entry ? { ...one, of } : one)) })
                }
                at={placeOf(at, entry.id)}
                troubles={props.troubles}
              />
            </Stack>
            <Button
              variant="default"
              px="xs"
              style={{ flex: "none" }}
              aria-label={`Remove ${label} ${place + 1}`}
              onClick={() => onChange({ items: items.filter((one) => one !== entry) })}
            >
              <IconTrash size={16} />
            </Button>
          </Group>
        ))}
        <Button
          variant="default"
          size="xs"
          leftSection={<IconPlus size={14} />}
          onClick={add}
          disabled={items.length >= field.most}
          style={{ alignSelf: "flex-start" }}
        >
          Add to {label}
        </Button>
        <Trouble {...props} />
      </Stack>
    </Fieldset>
  );
}

function VariantsField(props: InputProps & { readonly field: Of<"variants"> }) {
  const { field, draft, onChange, at, isRequired } = props;
  const chosen = draft && "variant" in draft ? draft : null;
  const option = chosen ? field.options[chosen.variant] : undefined;
  const choose = (value: string | null) => {
    const next = value === null ? undefined : field.options[Number(value)];
    onChange(next ? { variant: Number(value), of: blankOf(next) } : null);
  };
  return (
    <Fieldset legend={labelOf(props)}>
      <Stack gap="sm">
        <About field={field} />
        <Select
          label="Variant"
          placeholder={isRequired ? "Choose one" : "Omitted"}
          data={field.options.map((one, index) => ({
            value: String(index),
            label: visibleText(`${one.title || one.type} (${index + 1} of ${field.options.length})`),
          }))}
          value={chosen ? String(chosen.variant) : null}
          onChange={choose}
          clearable={!isRequired || field.isNullable}
        />
        {chosen && option ? (
          <SchemaField
            field={option}
            label={visibleText(option.title || option.type)}
            isRequired
            draft={chosen.of}
            onChange={(of) => onChange({ variant: chosen.variant, of })}
            at={placeOf(at, chosen.variant)}
            troubles={props.troubles}
          />
        ) : null}
        <Trouble {...props} />
      </Stack>
    </Fieldset>
  );
}

function Trouble({ at, troubles }: Pick<InputProps, "at" | "troubles">) {
  const says = troubles.get(at);
  return says === undefined ? null : (
    <Text size="sm" c="var(--mantine-color-error)" role="alert">
      {says}
    </Text>
  );
}
