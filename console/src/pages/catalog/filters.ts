/** The search and its filters, kept in the URL. */

export interface Filters {
  readonly q: string;
  readonly category: string;
  readonly tag: string;
  readonly server: string;
  readonly isReadOnly: boolean;
}

export function parseFilters(params: URLSearchParams): Filters {
  const text = (name: string) => params.get(name) ?? "";
  return {
    q: text("q"),
    category: text("category"),
    tag: text("tag"),
    server: text("server"),
    isReadOnly: params.get("readOnly") === "true",
  };
}

/** The address with these filters in it; what else it has stays. */
export function withFilters(params: URLSearchParams, filters: Partial<Filters>): URLSearchParams {
  const next = new URLSearchParams(params);
  const { isReadOnly, ...texts } = { ...parseFilters(params), ...filters };
  const all = { ...texts, readOnly: isReadOnly ? "true" : "" };
  for (const [name, value] of Object.entries(all)) {
    if (value === "") next.delete(name);
    else next.set(name, value);
  }
  return next;
}

/** Whether anything is searched for; if not, one browses. */
export function isSearching({ isReadOnly, ...texts }: Filters): boolean {
  return isReadOnly || Object.values(texts).some((one) => one.trim() !== "");
}
