/** Which grants are listed, and how much of them is used, in words. */
import type { Shapes } from "@/api/client";
import type { Range } from "@/parts/time-range";

export type Holder = Shapes["HolderGrant"];
export type Looked = Holder["kind"] | "server";

/** As `toolgate unused` has it. */
export const USUAL: Range = "30d";
/** Of a shorter time, almost everything is unused. */
export const SPANS: readonly Range[] = ["7d", "30d", "90d"];
export const LOOKED: readonly { value: Looked; label: string }[] = [
  { value: "task", label: "Tasks" },
  { value: "key", label: "Keys" },
  { value: "server", label: "Servers" },
];

/** What the URL asks for; tasks by default. */
export function askedFor(text: string | null): Looked {
  return LOOKED.find((one) => one.value === text)?.value ?? "task";
}

/** The page of one holder. */
export function holderPath(holder: Pick<Holder, "kind" | "id">, range: Range): string {
  return `/unused/${holder.kind}/${encodeURIComponent(holder.id)}?range=${range}`;
}

function some(many: number, what: string): string {
  return `${many.toLocaleString("en")} ${what}${many === 1 ? "" : "s"}`;
}

/** How much of what a holder is granted is not used. */
export function summaryOf(holder: Holder): string {
  const { granted, unused, unused_tokens: tokens } = holder;
  if (granted === 0) return "No tools granted.";
  if (unused === 0) return `All ${some(granted, "granted tool")} were used.`;
  const left =
    unused === granted
      ? `None of the ${some(granted, "granted tool")}`
      : `${unused.toLocaleString("en")} of ${some(granted, "granted tool")}`;
  const verb = unused === granted ? "was used" : unused === 1 ? "was not used" : "were not used";
  return `${left} ${verb}: about ${some(tokens, "token")} per list.`;
}
