/** What lint finds in a record, where that record is shown. */
import { Alert, List } from "@mantine/core";
import { queryOptions, useQuery } from "@tanstack/react-query";
import { api, type Shapes, take } from "@/api/client";
import { Prose } from "./prose";
import { Untrusted } from "./untrusted";

type Finding = Shapes["FindingShown"];

export const lintQuery = queryOptions({
  queryKey: ["derived", "lint"],
  queryFn: ({ signal }) => take(api.GET("/admin/api/lint", { signal })),
});

/** The findings about records of one kind, by their ids. */
export function useFindings(kind: Finding["kind"]): ReadonlyMap<string, readonly Finding[]> {
  const { data } = useQuery(lintQuery);
  const found = new Map<string, Finding[]>();
  for (const one of data?.findings ?? []) {
    if (one.kind === kind) found.set(one.id, [...(found.get(one.id) ?? []), one]);
  }
  return found;
}

export function Findings({ findings }: { readonly findings: readonly Finding[] | undefined }) {
  if (!findings?.length) return null;
  return (
    <Alert color="yellow" title="Rules to review">
      <List size="sm">
        {findings.map((one) => (
          <List.Item key={`${one.rule} ${one.subject} ${one.code}`}>
            <Untrusted text={one.rule} mono />
            {": "}
            <Prose text={one.message} />
          </List.Item>
        ))}
      </List>
    </Alert>
  );
}
