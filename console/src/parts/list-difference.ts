/** What two lists of a record differ by. */

export interface ListDifference {
  readonly added: readonly string[];
  readonly removed: readonly string[];
  readonly same: number;
}

/** Lists of so few entries are best read whole. */
const FEW = 6;

/** A list of texts, also as JSON in a text; null: not a list. */
function listOf(value: unknown): string[] | null {
  let read = value;
  if (typeof value === "string" && value.startsWith("[")) {
    try {
      read = JSON.parse(value);
    } catch {
      return null;
    }
  }
  return Array.isArray(read) && read.every((one) => typeof one === "string") ? read : null;
}

/** What was added and removed; null where both sides are better shown as they are. */
export function listDifference(before: unknown, after: unknown): ListDifference | null {
  const [old, now] = [listOf(before), listOf(after)];
  if (old === null || now === null || Math.max(old.length, now.length) <= FEW) return null;
  const [had, has] = [new Set(old), new Set(now)];
  const added = now.filter((one) => !had.has(one));
  const removed = old.filter((one) => !has.has(one));
  // The same entries in another order, or more often: there is no shorter way to say that.
  if (added.length + removed.length === 0) return null;
  return { added, removed, same: old.length - removed.length };
}
