/** The fields of a schema's form that hold one value. */
import { JsonInput, Select, Switch, Text, Textarea, TextInput } from "@mantine/core";
import { Prose } from "./prose";
import type { Field, Json } from "./schema-form-model";
import type { Draft } from "./schema-form-write";
import { Untrusted } from "./untrusted";
import { visibleText } from "./visible";

export type Of<K extends Field["kind"]> = Extract<Field, { kind: K }>;

export interface InputProps {
  readonly field: Field;
  /** Safe to be shown. */
  readonly label: string;
  readonly isRequired: boolean;
  readonly draft: Draft;
  readonly onChange: (draft: Draft) => void;
  readonly at: string;
  /** What is wrong, by place. */
  readonly troubles: ReadonlyMap<string, string>;
}

const SHORT = 60;

export function shortOf(value: Json): string {
  const text = typeof value === "string" ? value : JSON.stringify(value);
  return visibleText(text.length > SHORT ? `${text.slice(0, SHORT)}…` : text);
}

export function labelOf({ label, isRequired }: Pick<InputProps, "label" | "isRequired">): string {
  return isRequired ? `${label} *` : label;
}

/** What a field is for, and what holds for it. */
export function About({ field }: { readonly field: Field }) {
  const said = [
    field.type,
    ...field.limits,
    ...((field.initial ?? null) === null ? [] : [`default ${JSON.stringify(field.initial)}`]),
    ...field.examples.slice(0, 1).map((one) => `such as ${shortOf(JSON.stringify(one))}`),
  ].join(", ");
  return (
    <Text span size="xs" c="dimmed">
      {field.description ? (
        <>
          <Prose text={field.description} />
          <br />
        </>
      ) : null}
      <Untrusted text={said} mono />
    </Text>
  );
}

export function SimpleField(props: InputProps) {
  const { field } = props;
  if (field.kind === "flag") return <FlagField {...props} />;
  if (field.kind === "choice") return <ChoiceField {...props} field={field} />;
  if (field.kind === "raw") return <RawField {...props} field={field} />;
  return <TextField {...props} />;
}

function shared({ field, label, isRequired, at, troubles }: InputProps) {
  return {
    label,
    description: <About field={field} />,
    withAsterisk: isRequired,
    error: troubles.get(at),
  };
}

/** The placeholder of an omitted field. */
function hintOf({ initial }: Field, otherwise: string): string {
  return initial === undefined || initial === null ? otherwise : `Default: ${shortOf(initial)}`;
}

const textOf = (draft: Draft) => (draft && "text" in draft ? draft.text : "");

const TYPES: Readonly<Record<string, string>> = { date: "date", email: "email", uri: "url" };

function TextField(props: InputProps) {
  const { field, draft, onChange } = props;
  const format = field.kind === "text" ? field.format : "";
  const all = {
    ...shared(props),
    value: textOf(draft),
    placeholder: hintOf(field, ""),
    autoComplete: "off",
    spellCheck: false,
  };
  const typed = (text: string) => onChange({ text });
  if (field.kind === "text" && format === "")
    return <Textarea {...all} autosize maxRows={12} onChange={(event) => typed(event.currentTarget.value)} />;
  return (
    <TextInput
      {...all}
      type={Object.hasOwn(TYPES, format) ? TYPES[format] : "text"}
      inputMode={field.kind === "number" ? "decimal" : undefined}
      onChange={(event) => typed(event.currentTarget.value)}
    />
  );
}

function FlagField(props: InputProps) {
  const { field, label, isRequired, draft, onChange } = props;
  const isOn = draft && "isOn" in draft ? draft.isOn : null;
  if (isRequired && !field.isNullable)
    return (
      <Switch
        label={label}
        description={<About field={field} />}
        checked={isOn ?? false}
        onChange={(event) => onChange({ isOn: event.currentTarget.checked })}
      />
    );
  return (
    <Select
      {...shared(props)}
      placeholder={hintOf(field, "Omitted")}
      data={["true", "false"]}
      value={isOn === null ? null : String(isOn)}
      onChange={(value) => onChange(value === null ? null : { isOn: value === "true" })}
      clearable
      clearButtonProps={{ "aria-label": `Clear ${label}` }}
    />
  );
}

function ChoiceField(props: InputProps & { readonly field: Of<"choice"> }) {
  const { field, label, isRequired, draft, onChange } = props;
  return (
    <Select
      {...shared(props)}
      placeholder={hintOf(field, isRequired ? "Choose one" : "Omitted")}
      data={field.options.map((one, index) => ({ value: String(index), label: shortOf(one) }))}
      value={draft && "chosen" in draft ? String(draft.chosen) : null}
      onChange={(value) => onChange(value === null ? null : { chosen: Number(value) })}
      limit={50}
      searchable
      clearable={!isRequired}
      clearButtonProps={{ "aria-label": `Clear ${label}` }}
    />
  );
}

function RawField(props: InputProps & { readonly field: Of<"raw"> }) {
  return (
    <JsonInput
      {...shared(props)}
      placeholder={`JSON: ${props.field.why}`}
      value={textOf(props.draft)}
      onChange={(text) => props.onChange({ text })}
      autosize
      minRows={2}
      maxRows={20}
      classNames={{ input: "mono" }}
      spellCheck={false}
    />
  );
}
