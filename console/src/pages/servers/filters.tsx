/** Which servers are listed. The filters are in the URL, so that a view can be shared. */
import { Group, Select, TextInput } from "@mantine/core";
import { IconSearch } from "@tabler/icons-react";
import { useMemo } from "react";
import { useSearchParams } from "react-router";
import { NOT_KNOWN, STATES } from "@/parts/server-state";
import { visibleText } from "@/parts/visible";
import { readFilter, tagsOf } from "./listing";
import type { Server } from "./server-form";

const TRANSPORTS = [
  { value: "stdio", label: "stdio" },
  { value: "streamable_http", label: "HTTP" },
  { value: "http_sse_legacy", label: "HTTP+SSE" },
];

export function Filters({ servers }: { readonly servers: readonly Server[] }) {
  const [query, setQuery] = useSearchParams();
  const filter = readFilter(query);
  const tags = useMemo(() => tagsOf(servers), [servers]);
  const set = (name: string, value: string | null) =>
    setQuery(
      (old) => {
        if (value === null || value === "") old.delete(name);
        else old.set(name, value);
        return old;
      },
      { replace: true },
    );
  return (
    <Group gap="xs" mb="sm" role="search" aria-label="Filter">
      <TextInput
        aria-label="Find"
        placeholder="Find by ID, name, tag or error"
        leftSection={<IconSearch size={16} />}
        value={filter.text}
        onChange={(event) => set("q", event.currentTarget.value)}
        style={{ flex: "1 1 220px" }}
      />
      <Select
        aria-label="State"
        placeholder="Any state"
        data={[...STATES, NOT_KNOWN]}
        value={filter.state || null}
        onChange={(state) => set("state", state)}
        clearable
        w={150}
      />
      <Select
        aria-label="Transport"
        placeholder="Any transport"
        data={TRANSPORTS}
        value={filter.transport || null}
        onChange={(transport) => set("transport", transport)}
        clearable
        w={150}
      />
      {tags.length > 0 ? (
        <Select
          aria-label="Tag"
          placeholder="Any tag"
          data={tags.map((tag) => ({ value: tag, label: visibleText(tag) }))}
          value={filter.tag || null}
          onChange={(tag) => set("tag", tag)}
          clearable
          searchable
          limit={50}
          w={150}
        />
      ) : null}
    </Group>
  );
}
