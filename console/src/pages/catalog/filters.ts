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

/** Whether anything is searched for; if not, one browses. */
export function isSearching({ isReadOnly, ...texts }: Filters): boolean {
  return isReadOnly || Object.values(texts).some((one) => one.trim() !== "");
}
