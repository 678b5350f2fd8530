/** What is searched for, in words and by category, tag and server. */
import { Group, Select, Switch } from "@mantine/core";
import { IconSearch } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";
import { SettledInput } from "@/parts/settled-input";
import { visibleText } from "@/parts/visible";
import { type Filters, parseFilters, withFilters } from "./filters";
import { categoriesQuery, reachQuery } from "./queries";

const MOST = 50;

export function SearchFields() {
  const [params, setParams] = useSearchParams();
  const filters = parseFilters(params);
  const set = (part: Partial<Filters>) => setParams((old) => withFilters(old, part), { replace: true });
  const categories = useQuery(categoriesQuery).data ?? [];
  const servers = useQuery(reachQuery).data ?? [];
  const tags = [...new Set(servers.flatMap((one) => one.tags))].sort();
  return (
    <Group gap="xs" role="search" aria-label="Search the catalog" align="flex-end">
      <SettledInput
        aria-label="Search"
        placeholder="What should the tool do?"
        leftSection={<IconSearch size={16} />}
        value={filters.q}
        onChange={(q) => set({ q })}
        maxLength={1024}
        style={{ flex: "1 1 260px" }}
      />
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
