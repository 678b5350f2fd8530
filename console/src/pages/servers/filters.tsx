/** Which servers are listed. The filters are in the URL, so that a view can be shared. */
import { type ReactNode, useMemo } from "react";
import { FilterRow } from "@/parts/filter-row";
import { tagsOf } from "./listing";
import type { Server } from "./server-form";
import { STATE_WORDS } from "./server-status";

export const FILTERS = ["state", "offered", "transport", "tag"];

const SELECTS = [
  { name: "state", label: "State", any: "Any state", data: STATE_WORDS },
  {
    name: "offered",
    label: "Offered",
    any: "Any number offered",
    data: [{ value: "none", label: "no tool offered" }],
  },
  {
    name: "transport",
    label: "Transport",
    any: "Any transport",
    data: [
      { value: "stdio", label: "stdio" },
      { value: "streamable_http", label: "HTTP" },
      { value: "http_sse_legacy", label: "HTTP+SSE" },
    ],
  },
];

interface FiltersProps {
  readonly servers: readonly Server[];
  /** At the end of the row. */
  readonly children?: ReactNode;
}

export function Filters({ servers, children }: FiltersProps) {
  const tags = useMemo(() => tagsOf(servers).map((tag) => ({ value: tag, label: tag })), [servers]);
  const tag = { name: "tag", label: "Tag", any: "Any tag", data: tags };
  return (
    <FilterRow find="Find by ID, name, tag or error" selects={tags.length > 0 ? [...SELECTS, tag] : SELECTS}>
      {children}
    </FilterRow>
  );
}
