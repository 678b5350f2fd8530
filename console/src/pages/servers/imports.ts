/** What became of each definition in a file of another program, as rows to choose from. */
import type { components } from "@/api/schema";

type Shapes = components["schemas"];

export type ImportResponse = Shapes["ImportResponse"];
export type Format = NonNullable<Shapes["ImportSent"]["format"]>;

export interface Found {
  readonly name: string;
  /** Its name in the file, where the ID is another. */
  readonly was: string;
  readonly outcome: "added" | "changed" | "same" | "skipped" | "refused";
  readonly reason: string;
  /** What of the stored record it replaces, or would replace. */
  readonly replaced: Shapes["ChangeShown"]["fields"];
  /** Whether there is a choice: what is refused is not imported in any case. */
  readonly canBePicked: boolean;
}

const NOT_FOUND = { was: "", replaced: [], canBePicked: false };

/** The servers whose stored record an import of everything would replace. */
export function replacedBy(whole: ImportResponse): ReadonlySet<string> {
  return new Set(whole.changes.filter((one) => one.operation === "changed").map((one) => one.id));
}

function nameIn(whole: ImportResponse, id: string): string {
  const title = whole.records.find((one) => one.server_id === id)?.display_name;
  return typeof title === "string" && title !== id ? title : "";
}

/** `whole` is the dry run of everything; `left` holds the IDs that are not ticked. */
export function toFound(answer: ImportResponse, left: ReadonlySet<string>, whole = answer): Found[] {
  const refused = new Map(answer.skipped.map(({ name, reason }) => [name, reason]));
  const changes = new Map(answer.changes.map((one) => [one.id, one.operation]));
  const replaced = new Map(
    whole.changes.filter((one) => one.operation === "changed").map((one) => [one.id, one.fields]),
  );
  const rows = answer.servers.map((id): Found => {
    const reason = refused.get(id);
    refused.delete(id);
    if (reason !== undefined && !left.has(id)) return { ...NOT_FOUND, name: id, outcome: "refused", reason };
    const operation = changes.get(id);
    const outcome = left.has(id)
      ? "skipped"
      : operation === "added" || operation === "changed"
        ? operation
        : "same";
    const was = nameIn(whole, id);
    return { name: id, was, outcome, reason: "", replaced: replaced.get(id) ?? [], canBePicked: true };
  });
  const unread = [...refused].map(
    ([name, reason]): Found => ({ ...NOT_FOUND, name, outcome: "refused", reason }),
  );
  return [...rows, ...unread];
}

/** The ids to import, where not all of them are; null: all. */
export function wanted(answer: ImportResponse | undefined, left: ReadonlySet<string>): string[] | null {
  return answer === undefined || left.size === 0 ? null : answer.servers.filter((id) => !left.has(id));
}
