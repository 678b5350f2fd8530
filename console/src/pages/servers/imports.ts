/** What became of each definition in a file of another program, as rows to choose from. */
import type { Shapes } from "@/api/client";

export type ImportResponse = Shapes["ImportResponse"];
export type Format = NonNullable<Shapes["ImportSent"]["format"]>;

export interface Found {
  readonly name: string;
  readonly outcome: "added" | "changed" | "same" | "skipped" | "refused";
  readonly reason: string;
  /** Whether there is a choice: what is refused is not imported in any case. */
  readonly canBePicked: boolean;
}

/** `left` holds the IDs that the user has unticked. */
export function toFound(answer: ImportResponse, left: ReadonlySet<string>): Found[] {
  const refused = new Map(answer.skipped.map(({ name, reason }) => [name, reason]));
  const changes = new Map(answer.changes.map((one) => [one.id, one.operation]));
  const rows = answer.servers.map((id): Found => {
    const reason = refused.get(id);
    refused.delete(id);
    if (reason !== undefined && !left.has(id))
      return { name: id, outcome: "refused", reason, canBePicked: false };
    const operation = changes.get(id);
    const outcome = left.has(id)
      ? "skipped"
      : operation === "added" || operation === "changed"
        ? operation
        : "same";
    return { name: id, outcome, reason: "", canBePicked: true };
  });
  const unread = [...refused].map(
    ([name, reason]): Found => ({ name, outcome: "refused", reason, canBePicked: false }),
  );
  return [...rows, ...unread];
}

/** The ids to import, where not all of them are; null: all. */
export function wanted(answer: ImportResponse | undefined, left: ReadonlySet<string>): string[] | null {
  return answer === undefined || left.size === 0 ? null : answer.servers.filter((id) => !left.has(id));
}
