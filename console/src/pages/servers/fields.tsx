/** The inputs of the form: text with hidden characters spelled out, lists of texts, and tables of names and values. */
import {
  ActionIcon,
  Button,
  Group,
  Input,
  NumberInput,
  Pill,
  Select,
  Stack,
  TagsInput,
  Text,
  TextInput,
} from "@mantine/core";
import { IconPlus, IconX } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { HelpLabel } from "@/parts/help";
import { Untrusted } from "@/parts/untrusted";
import { visible, visibleText } from "@/parts/visible";
import type { Pair, Typed } from "./server-form";

interface FieldProps<Value> {
  readonly label: string;
  /** The field of a server's record whose help is shown, like `stdio.command`. */
  readonly help?: string;
  readonly about?: ReactNode;
  readonly value: Value;
  readonly onChange: (value: Value) => void;
  readonly problem?: string;
  readonly placeholder?: string;
}

/** A browser's input does not show invisible characters; they are spelled out next to it. */
function Hidden({ text }: { readonly text: string }) {
  if (!visible(text).some((piece) => piece.isEscaped)) return null;
  return (
    <Text size="xs" component="div">
      Contains invisible characters: <Untrusted text={text} mono />
    </Text>
  );
}

/** A label, and the help of its field. */
export function labelOf(label: string, help: string | undefined): ReactNode {
  return help === undefined ? label : <HelpLabel of={`server.${help}`} label={label} />;
}

/** A problem as inputs show it. It may quote user input. */
export function told(problem: string | undefined): ReactNode {
  return problem === undefined ? undefined : <Untrusted text={problem} />;
}

interface TextFieldProps extends FieldProps<string> {
  readonly isMono?: boolean;
  readonly isNeeded?: boolean;
  readonly isFixed?: boolean;
}

export function TextField(props: TextFieldProps) {
  const { label, help, about, value, onChange, problem, placeholder, isMono, isNeeded, isFixed } = props;
  return (
    <div>
      <TextInput
        label={labelOf(label, help)}
        aria-label={label}
        description={about}
        value={value}
        onChange={(event) => onChange(event.currentTarget.value)}
        error={told(problem)}
        placeholder={placeholder}
        withAsterisk={isNeeded}
        readOnly={isFixed}
        classNames={{ input: isMono ? "mono" : undefined }}
        autoComplete="off"
        spellCheck={false}
      />
      <Hidden text={value} />
    </div>
  );
}

interface NumberFieldProps extends FieldProps<Typed> {
  readonly range: readonly [number, number];
  readonly unit?: string;
}

export function NumberField({ label, help, about, value, onChange, problem, range, unit }: NumberFieldProps) {
  return (
    <NumberInput
      label={labelOf(label, help)}
      aria-label={label}
      description={about}
      value={value}
      onChange={onChange}
      error={told(problem)}
      min={range[0]}
      max={range[1]}
      clampBehavior="none"
      allowDecimal={false}
      thousandSeparator=","
      suffix={unit ? ` ${unit}` : undefined}
    />
  );
}

/** Short words in any number: tags, patterns, scopes. */
export function WordsField(
  props: FieldProps<readonly string[]> & { readonly suggestions?: readonly string[] },
) {
  const { label, help, about, value, onChange, problem, placeholder, suggestions = [] } = props;
  return (
    <TagsInput
      label={labelOf(label, help)}
      aria-label={label}
      description={about}
      value={[...value]}
      onChange={onChange}
      error={told(problem)}
      placeholder={value.length === 0 ? placeholder : undefined}
      data={[...suggestions]}
      limit={50}
      splitChars={[]}
      renderPill={({ option, onRemove, disabled }) => (
        <Pill
          withRemoveButton={!disabled}
          onRemove={onRemove}
          removeButtonProps={{
            "aria-hidden": false,
            "aria-label": `Remove ${visibleText(String(option.value))}`,
            tabIndex: 0,
          }}
        >
          <Untrusted text={String(option.value)} mono />
        </Pill>
      )}
    />
  );
}

function RemoveRow({ label, onClick }: { readonly label: string; readonly onClick: () => void }) {
  return (
    <ActionIcon variant="subtle" color="gray" size="lg" aria-label={label} onClick={onClick}>
      <IconX size={16} />
    </ActionIcon>
  );
}

interface RowsProps<Row> extends Omit<FieldProps<readonly Row[]>, "placeholder"> {
  readonly one: string;
  readonly blank: Row;
  readonly show: (row: Row, place: number, change: (row: Row) => void) => ReactNode;
}

/** A list one below the other, each with its own inputs. Its order is kept. */
function Rows<Row>({ label, help, about, value, onChange, problem, one, blank, show }: RowsProps<Row>) {
  const change = (place: number, row: Row) => onChange(value.map((old, at) => (at === place ? row : old)));
  return (
    <Input.Wrapper label={labelOf(label, help)} description={about} error={told(problem)} labelElement="div">
      <Stack gap={6} mt={4} role="group" aria-label={label}>
        {value.map((row, place) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a row is known by its place
          <Group key={place} gap={6} wrap="nowrap" align="flex-start">
            {show(row, place, (changed) => change(place, changed))}
            <RemoveRow
              label={`Remove ${one} ${place + 1}`}
              onClick={() => onChange(value.filter((_, at) => at !== place))}
            />
          </Group>
        ))}
        <Group>
          <Button
            size="xs"
            variant="default"
            leftSection={<IconPlus size={14} />}
            onClick={() => onChange([...value, blank])}
          >
            Add {one}
          </Button>
        </Group>
      </Stack>
    </Input.Wrapper>
  );
}

/** Texts of which each may hold anything, spaces and commas included. */
export function ListField(props: FieldProps<readonly string[]> & { readonly one: string }) {
  return (
    <Rows
      {...props}
      blank=""
      show={(row, place, change) => (
        <div style={{ flex: 1 }}>
          <TextInput
            aria-label={`${props.one} ${place + 1}`}
            value={row}
            onChange={(event) => change(event.currentTarget.value)}
            classNames={{ input: "mono" }}
            autoComplete="off"
            spellCheck={false}
          />
          <Hidden text={row} />
        </div>
      )}
    />
  );
}

interface PairsFieldProps<Value extends string> extends FieldProps<readonly Pair<Value>[]> {
  readonly one: string;
  readonly choices?: readonly Value[];
  readonly first: Value;
  readonly problemOf: (place: number) => string | undefined;
}

/** Names with a value each, which is text or one of a few choices. */
export function PairsField<Value extends string>(props: PairsFieldProps<Value>) {
  const { one, first, choices, problemOf } = props;
  return (
    <Rows
      {...props}
      blank={{ key: "", value: first }}
      show={(row, place, change) => (
        <>
          <div style={{ flex: 2 }}>
            <TextInput
              aria-label={`Name of ${one} ${place + 1}`}
              placeholder="name"
              value={row.key}
              onChange={(event) => change({ ...row, key: event.currentTarget.value })}
              error={told(problemOf(place))}
              classNames={{ input: "mono" }}
              autoComplete="off"
              spellCheck={false}
            />
            <Hidden text={row.key} />
          </div>
          <div style={{ flex: choices ? 1 : 3 }}>
            <ValueInput
              label={`Value of ${one} ${place + 1}`}
              value={row.value}
              choices={choices}
              onChange={(value) => change({ ...row, value })}
            />
          </div>
        </>
      )}
    />
  );
}

interface ValueInputProps<Value extends string> {
  readonly label: string;
  readonly value: Value;
  readonly choices?: readonly Value[];
  readonly onChange: (value: Value) => void;
}

function ValueInput<Value extends string>({ label, value, choices, onChange }: ValueInputProps<Value>) {
  if (choices)
    return (
      <Select
        aria-label={label}
        value={value}
        data={[...choices]}
        allowDeselect={false}
        onChange={(chosen) => onChange(choices.find((one) => one === chosen) ?? value)}
      />
    );
  return (
    <>
      <TextInput
        aria-label={label}
        placeholder="value"
        value={value}
        // Without choices any text is a value.
        onChange={(event) => onChange(event.currentTarget.value as Value)}
        classNames={{ input: "mono" }}
        autoComplete="off"
        spellCheck={false}
      />
      <Hidden text={value} />
    </>
  );
}
