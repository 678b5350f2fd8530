/** When something was used last, within the audit log. */
import { ago, moment } from "@/parts/time";

export function LastUsed({ ms }: { readonly ms: number | null }) {
  return ms === null ? "never" : <span title={moment(ms)}>{ago(ms)}</span>;
}
