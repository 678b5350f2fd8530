/** What is searched for, in words and by category, tag and server. */
import { Group, Select, Switch, TextInput } from "@mantine/core";
import { useDebouncedCallback } from "@mantine/hooks";
import { IconSearch } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { useSearchParams } from "react-router";
import { visibleText } from "@/parts/visible";
import { type Filters, parseFilters, withFilters } from "./filters";
import { categoriesQuery, reachQuery } from "./queries";

const MOST = 50;
const PAUSE_MS = 250;

export function SearchFields() {
  const [params, setParams] = useSearchParams();
  const filters = parseFilters(params);
  const set = (part: Partial<Filters>) => setParams((old) => withFilters(old, part), { replace: true });
  const categories = useQuery(categoriesQuery).data ?? [];
  const servers = useQuery(reachQuery).data ?? [];
  const tags = [...new Set(servers.flatMap((one) => one.tags))].sort();
  return (
    <Group gap="xs" role="search" aria-label="Search the catalog" align="flex-end">
      <Words value={filters.q} onChange={(q) => set({ q })} />
      <Choice
        label="Category"
        value={filters.category}
        known={categories.map((one) => one.name)}
        onChange={(category) => set({ category })}
      />
      <Choice label="Tag" value={filters.tag} known={tags} onChange={(tag) => set({ tag })} />
      <Choice
        label="Server"
        value={filters.server}
        known={servers.map((one) => one.server_id)}
        onChange={(server) => set({ server })}
      />
      <Switch
        label="Read-only"
        checked={filters.isReadOnly}
        onChange={(event) => set({ isReadOnly: event.currentTarget.checked })}
        my={8}
      />
    </Group>
  );
}

interface WordsProps {
  readonly value: string;
  readonly onChange: (value: string) => void;
}

/** The input goes to the URL after a pause; the URL goes to the input unless the user is typing. */
function Words({ value, onChange }: WordsProps) {
  const [text, setText] = useState(value);
  const [isTyping, setTyping] = useState(false);
  const settle = useDebouncedCallback(onChange, PAUSE_MS);
  const typed = (next: string) => {
    setText(next);
    setTyping(true);
    settle(next);
  };
  return (
    <TextInput
      aria-label="Search"
      placeholder="What should the tool do?"
      leftSection={<IconSearch size={16} />}
      value={isTyping ? text : value}
      maxLength={1024}
      onChange={(event) => typed(event.currentTarget.value)}
      onBlur={() => {
        settle.flush();
        setTyping(false);
      }}
      style={{ flex: "1 1 260px" }}
    />
  );
}

interface ChoiceProps {
  readonly label: string;
  readonly value: string;
  readonly known: readonly string[];
  readonly onChange: (value: string) => void;
}

function Choice({ label, value, known, onChange }: ChoiceProps) {
  const all = value === "" || known.includes(value) ? known : [value, ...known];
  return (
    <Select
      aria-label={label}
      placeholder={`Any ${label.toLowerCase()}`}
      data={all.map((one) => ({ value: one, label: visibleText(one) }))}
      value={value || null}
      onChange={(chosen) => onChange(chosen ?? "")}
      searchable
      clearable
      clearButtonProps={{ "aria-label": `Clear ${label.toLowerCase()}` }}
      limit={MOST}
      w={160}
      nothingFoundMessage="No matches"
    />
  );
}
