/** A list of a record. One that is left out does not restrict; an empty one lets nothing pass. */
import { Pill, Stack, Switch, TagsInput, type TagsInputProps, Text } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { HelpLabel, type HelpOf } from "./help";
import { PatternPreview, type PatternServers } from "./pattern-preview";
import { useToolsLike } from "./tools-like";
import { Untrusted } from "./untrusted";

/** Entries and choices as texts of strangers: for every `TagsInput`. */
export const UNTRUSTED_TAGS: Pick<TagsInputProps, "renderOption" | "renderPill"> = {
  renderOption: ({ option }) => <Untrusted text={String(option.value)} mono />,
  renderPill: ({ value, onRemove }) => (
    <Pill withRemoveButton onRemove={onRemove}>
      <Untrusted text={String(value)} mono />
    </Pill>
  ),
};

/** So many choices are offered at once; more are found by typing. */
const MOST = 50;

interface TextsFieldProps {
  readonly label: string;
  readonly about?: ReactNode;
  readonly value: readonly string[];
  readonly onChange: (value: string[]) => void;
  /** What is offered; anything else may be typed. */
  readonly known?: readonly string[];
  /** The entries are patterns: what they match is shown. */
  readonly isPatterns?: boolean;
  /** The patterns deny. */
  readonly isDeny?: boolean;
  /** The servers that the patterns apply to; all without it. */
  readonly on?: PatternServers;
  readonly isLabelled?: boolean;
  /** The field of the record, for its help. */
  readonly of?: HelpOf;
}

/** Entries, one after the other. Enter adds one. */
export function TextsField({
  label,
  about,
  value,
  onChange,
  known = [],
  isPatterns = false,
  isDeny = false,
  on,
  isLabelled = true,
  of,
}: TextsFieldProps) {
  const [typed, setTyped] = useState("");
  const tools = useToolsLike(isPatterns ? typed : "");
  return (
    <Stack gap={4}>
      <TagsInput
        label={isLabelled ? of ? <HelpLabel of={of} label={label} /> : label : undefined}
        aria-label={label}
        description={about}
        value={[...value]}
        onChange={onChange}
        data={isPatterns ? tools : [...known]}
        onSearchChange={setTyped}
        {...UNTRUSTED_TAGS}
        limit={MOST}
        splitChars={[" "]}
        acceptValueOnBlur
        placeholder={isPatterns ? "Add a pattern, such as get_*, git/* or @read_only" : "Add"}
      />
      {isPatterns ? <PatternPreview patterns={value} isDeny={isDeny} on={on} /> : null}
    </Stack>
  );
}

interface OptionalListProps extends Omit<TextsFieldProps, "value" | "onChange" | "isLabelled"> {
  /** Null: the list is left out. */
  readonly value: readonly string[] | null;
  readonly onChange: (value: string[] | null) => void;
}

/** A list with a switch in front of it, that says whether it is there. */
export function OptionalList({ label, about, value, onChange, of, ...rest }: OptionalListProps) {
  return (
    <Stack gap={4}>
      <Switch
        label={of ? <HelpLabel of={of} label={label} /> : label}
        aria-label={label}
        description={about}
        checked={value !== null}
        onChange={(event) => onChange(event.currentTarget.checked ? [] : null)}
      />
      {value === null ? null : (
        <TextsField
          {...rest}
          label={`${label}: entries`}
          isLabelled={false}
          value={value}
          onChange={onChange}
        />
      )}
      {value?.length === 0 ? <Text size="sm">The list is empty: it allows nothing.</Text> : null}
    </Stack>
  );
}

interface ToolListsProps {
  /** Null: every tool matches. */
  readonly allow: readonly string[] | null;
  readonly deny: readonly string[];
  readonly set: (part: { allow: string[] | null } | { deny: string[] }) => void;
  /** The servers that they apply to; all without it. */
  readonly on?: PatternServers;
  /** The fields of the record. */
  readonly of?: { readonly allow: HelpOf; readonly deny: HelpOf };
}

/** The two lists of patterns that narrow tools. */
export function ToolLists({ allow, deny, set, on, of }: ToolListsProps) {
  return (
    <>
      <OptionalList
        label="Only these tools"
        about="A tool must match one of these patterns."
        value={allow}
        onChange={(chosen) => set({ allow: chosen })}
        isPatterns
        on={on}
        of={of?.allow}
      />
      <TextsField
        label="None of these tools"
        about="Tools that match a pattern are denied."
        value={deny}
        onChange={(chosen) => set({ deny: chosen })}
        isPatterns
        isDeny
        on={on}
        of={of?.deny}
      />
    </>
  );
}
