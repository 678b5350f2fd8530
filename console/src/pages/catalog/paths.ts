/** The paths of the catalog. Tool names are in the query, because a tool may be named `..`. */

export const toolPath = (fullName: string, more: Readonly<Record<string, string>> = {}) =>
  `/catalog/tool?${new URLSearchParams({ name: fullName, ...more })}`;
export const packagePath = (id: string) => `/catalog/packages/${encodeURIComponent(id)}`;
export const categoryPath = (id: string) => `/catalog/in/${encodeURIComponent(id)}`;
export const whyPath = (fullName: string) => `/scope?${new URLSearchParams({ why: fullName })}`;

/** The server of a tool's full name: no server id has a dot. */
export function serverOf(fullName: string): string {
  return fullName.split(".", 1)[0] ?? "";
}
