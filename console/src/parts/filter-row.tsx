/** The filters of a list: a search field and selects in one row, active ones as chips. All of it is in the URL. */
import { Badge, Button, CloseButton, Group, Select, Stack, TextInput } from "@mantine/core";
import { IconSearch } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { useSearchParams } from "react-router";
import { Untrusted } from "./untrusted";
import { visibleText } from "./visible";

export interface FilterSelect {
  /** The parameter of the URL. */
  readonly name: string;
  readonly label: string;
  /** What is said if nothing is chosen, such as "Any state". */
  readonly any: string;
  readonly data: readonly { readonly value: string; readonly label: string }[];
}

const TEXT = "q";

/** The filters in the URL. A missing one is the empty text. */
export function useFilters() {
  const [params, setParams] = useSearchParams();
  const of = (name: string) => params.get(name) ?? "";
  const set = (changes: Readonly<Record<string, string>>) =>
    setParams(
      (old) => {
        for (const [name, value] of Object.entries(changes)) {
          if (value === "") old.delete(name);
          else old.set(name, value);
        }
        return old;
      },
      { replace: true },
    );
  return { of, set, text: of(TEXT) };
}

interface FilterRowProps {
  /** What the search field looks in. Without it there is no search field. */
  readonly find?: string;
  readonly selects?: readonly FilterSelect[];
  /** At the end of the row, such as a time range. */
  readonly children?: ReactNode;
}

export function FilterRow({ find, selects = [], children }: FilterRowProps) {
  const { of, set, text } = useFilters();
  return (
    <Stack gap="xs" mb="sm" role="search" aria-label="Filter">
      <Group gap="xs">
        {find === undefined ? null : (
          <TextInput
            aria-label="Find"
            placeholder={find}
            type="search"
            leftSection={<IconSearch size={16} aria-hidden />}
            value={text}
            maxLength={1024}
            onChange={(event) => set({ [TEXT]: event.currentTarget.value })}
            style={{ flex: "1 1 220px" }}
            maw={420}
          />
        )}
        {selects.map(({ name, label, any, data }) => (
          <Select
            key={name}
            aria-label={label}
            placeholder={any}
            data={data.map((one) => ({ ...one, label: visibleText(one.label) }))}
            value={of(name) || null}
            onChange={(value) => set({ [name]: value ?? "" })}
            clearable
            clearButtonProps={{ "aria-label": `Clear: ${label}` }}
            searchable={data.length > 8}
            limit={50}
            style={{ flex: "1 1 150px" }}
            maw={{ base: "100%", xs: 200 }}
          />
        ))}
        {children}
      </Group>
      <Chips selects={selects} hasText={find !== undefined} />
    </Stack>
  );
}

function Chips({
  selects,
  hasText,
}: {
  readonly selects: readonly FilterSelect[];
  readonly hasText: boolean;
}) {
  const { of, set } = useFilters();
  const texts = hasText ? [{ name: TEXT, label: "Text", said: of(TEXT) }] : [];
  const chosen = selects.map(({ name, label, data }) => ({
    name,
    label,
    said: data.find((one) => one.value === of(name))?.label ?? of(name),
  }));
  const active = [...texts, ...chosen].filter((one) => one.said !== "");
  return (
    <FilterChips
      chips={active.map(({ name, label, said }) => ({ name, label, text: said }))}
      onRemove={(name) => set({ [name]: "" })}
      onClear={() => set(Object.fromEntries(active.map((one) => [one.name, ""])))}
    />
  );
}

interface FilterChipsProps<Name extends string> {
  readonly chips: readonly { readonly name: Name; readonly label: string; readonly text: string }[];
  readonly onRemove: (name: Name) => void;
  readonly onClear: () => void;
}

/** The active filters, each with a button to remove it. */
export function FilterChips<Name extends string>({ chips, onRemove, onClear }: FilterChipsProps<Name>) {
  if (chips.length === 0) return null;
  return (
    <Group gap="xs">
      {chips.map(({ name, label, text }) => (
        <Badge
          key={name}
          variant="light"
          size="lg"
          rightSection={
            <CloseButton
              size="xs"
              aria-label={`Remove filter ${label}: ${visibleText(text)}`}
              onClick={() => onRemove(name)}
            />
          }
        >
          {label}: <Untrusted text={text} />
        </Badge>
      ))}
      <Button size="compact-xs" variant="subtle" onClick={onClear}>
        Clear all
      </Button>
    </Group>
  );
}

/** For a list in which no row matches. */
export function ClearFilters({ names }: { readonly names: readonly string[] }) {
  const { set } = useFilters();
  return (
    <Button
      variant="default"
      onClick={() => set(Object.fromEntries([TEXT, ...names].map((one) => [one, ""])))}
    >
      Clear filters
    </Button>
  );
}
