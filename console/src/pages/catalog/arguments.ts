/** The arguments of a call, typed into a form or as JSON, and the way from one to the other. */
import { shownBy, startOf } from "@/parts/schema-form-draft";
import type { Field, Json, JsonObject } from "@/parts/schema-form-model";
import { isObject } from "@/parts/schema-form-model";
import { type Draft, type Trouble, write, writeJson } from "@/parts/schema-form-write";

export type Typed =
  | { readonly mode: "form"; readonly draft: Draft }
  | { readonly mode: "json"; readonly text: string };

/** Whether there is a form at all: arguments that are no plain object are written as JSON. */
export function hasForm(field: Field): boolean {
  return field.kind === "group";
}

export function begin(field: Field): Typed {
  if (!hasForm(field)) return { mode: "json", text: "{}" };
  return { mode: "form", draft: startOf({ ...field, initial: undefined }, true) };
}

export interface Read {
  /** Null: they are invalid. */
  readonly value: JsonObject | null;
  readonly troubles: readonly Trouble[];
}

/** The arguments, or their problems. */
export function read(field: Field, typed: Typed): Read {
  const { value, troubles } =
    typed.mode === "form" ? write(field, typed.draft, true) : writeJson(typed.text.trim() || "{}", "$");
  if (troubles.length > 0) return { value: null, troubles };
  if (isObject(value)) return { value, troubles };
  return { value: null, troubles: [{ at: "$", says: "Arguments must be an object.", isMissing: false }] };
}

/** The same as JSON. */
export function toJson(field: Field, typed: Typed): Typed {
  if (typed.mode === "json") return typed;
  const { value } = write(field, typed.draft, true);
  return { mode: "json", text: JSON.stringify(value ?? {}, null, 2) };
}

/** The same as a form; null where it cannot show all of it. */
export function toForm(field: Field, typed: Typed): Typed | null {
  if (typed.mode === "form") return typed;
  const { value } = writeJson(typed.text.trim() || "{}", "$");
  const draft = hasForm(field) && value !== undefined ? shownBy(field, value as Json) : null;
  return draft === null ? null : { mode: "form", draft };
}
