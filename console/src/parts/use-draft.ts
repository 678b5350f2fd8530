/** The state of an editor: the stored record and the input. */
import { useEffect, useState } from "react";

/** A record as it is saved, and the tag to change it by; empty: it is not there yet. */
export interface Tagged<R> {
  readonly record: R;
  readonly etag: string;
}

/** How a kind of record is typed. */
export interface Typing<R, D> {
  readonly draftOf: (record: R) => D;
  /** `draft`, made from `old`, on top of `fresh`. */
  readonly rebased: (draft: D, old: R, fresh: R) => D;
}

export function isSame(a: unknown, b: unknown): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** `proposed`: what the fields hold at first, in place of what is saved. */
export function useDraft<R, D extends object>(
  saved: Tagged<R>,
  { draftOf, rebased }: Typing<R, D>,
  proposed?: Partial<R>,
) {
  const [base, setBase] = useState(saved);
  const [draft, setDraft] = useState(() => draftOf({ ...saved.record, ...proposed }));
  const isDirty = !isSame(draft, draftOf(base.record));
  const isBehind = saved.etag !== base.etag;
  useEffect(() => {
    if (!isBehind || isDirty) return;
    setBase(saved);
    setDraft(draftOf(saved.record));
  }, [isBehind, isDirty, saved, draftOf]);
  return {
    base,
    draft,
    isDirty,
    /** Someone else changed the record, and this draft has input. */
    isOutdated: isBehind && isDirty,
    set: (part: Partial<D>) => setDraft((old) => ({ ...old, ...part })),
    /** Load the other version, and keep the input. */
    rebase: () => {
      setDraft(rebased(draft, base.record, saved.record));
      setBase(saved);
    },
  };
}

/** `draft` on top of `now`: fields that differ from `before` stay as they were typed. */
export function mergedFields<D extends object>(draft: D, before: D, now: D): D {
  const typed = Object.entries(draft).filter(([name, value]) => !isSame(value, before[name as keyof D]));
  return { ...now, ...Object.fromEntries(typed) };
}
