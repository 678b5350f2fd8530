/** What is searched for, in words and by category, tag and server. */
import { Switch } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { FilterRow, useFilters } from "@/parts/filter-row";
import { categoriesQuery, reachQuery } from "./queries";

const optionsOf = (names: readonly string[]) => names.map((one) => ({ value: one, label: one }));

export function SearchFields() {
  const { of, set } = useFilters();
  const categories = useQuery(categoriesQuery).data ?? [];
  const servers = useQuery(reachQuery).data ?? [];
  const tags = [...new Set(servers.flatMap((one) => one.tags))].sort();
  return (
    <FilterRow
      find="What should the tool do?"
      selects={[
        {
          name: "category",
          label: "Category",
          any: "Any category",
          data: optionsOf(categories.map((one) => one.name)),
        },
        { name: "tag", label: "Tag", any: "Any tag", data: optionsOf(tags) },
        {
          name: "server",
          label: "Server",
          any: "Any server",
          data: optionsOf(servers.map((one) => one.server_id)),
        },
      ]}
    >
      <Switch
        label="Read-only"
        checked={of("readOnly") === "true"}
        onChange={(event) => set({ readOnly: event.currentTarget.checked ? "true" : "" })}
      />
    </FilterRow>
  );
}
