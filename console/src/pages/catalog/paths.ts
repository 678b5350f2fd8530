/** Where things of the catalog are. Names of tools stand in the query: one may be called `..`. */

export const toolPath = (fullName: string, more: Readonly<Record<string, string>> = {}) =>
  `/catalog/tool?${new URLSearchParams({ name: fullName, ...more })}`;
export const packagePath = (id: string) => `/catalog/packages/${encodeURIComponent(id)}`;
export const categoryPath = (id: string) => `/catalog/in/${encodeURIComponent(id)}`;
export const whyPath = (fullName: string) => `/scope?${new URLSearchParams({ why: fullName })}`;

/** The server of a tool's full name: no server id has a dot. */
export function serverOf(fullName: string): string {
  return fullName.split(".", 1)[0] ?? "";
}
