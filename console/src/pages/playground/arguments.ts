/** The arguments of a call, typed into a form or as JSON, and the way from one to the other. */
import { shownBy, startOf } from "@/parts/schema-form-draft";
import { filled } from "@/parts/schema-form-fill";
import type { Field, Json, JsonObject } from "@/parts/schema-form-model";
import { isObject } from "@/parts/schema-form-model";
import { type Draft, type Trouble, write, writeJson } from "@/parts/schema-form-write";
import { isSame } from "@/parts/use-draft";

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
  /** What of them can be written anyway. */
  readonly partial: JsonObject;
  readonly troubles: readonly Trouble[];
}

const INEXACT = "A number is too large to send exactly. Send it as a string, if the tool accepts that.";

/** The arguments, or their problems. */
export function read(field: Field, typed: Typed): Read {
  const { value, troubles } =
    typed.mode === "form" ? write(field, typed.draft, true) : writeJson(typed.text.trim() || "{}", "$");
  const partial = isObject(value) ? value : {};
  const failed = (says: string): Read => ({
    value: null,
    partial,
    troubles: [{ at: "$", says, isMissing: false }],
  });
  if (troubles.length > 0) return { value: null, partial, troubles };
  if (!isObject(value)) return failed("Arguments must be an object.");
  if (isInexact(value)) return failed(INEXACT);
  return { value, partial, troubles };
}

/** Whether a number in it is not the one that was typed. */
function isInexact(value: Json): boolean {
  if (typeof value === "number") return Number.isInteger(value) && !Number.isSafeInteger(value);
  if (Array.isArray(value)) return value.some(isInexact);
  return isObject(value) && Object.values(value).some(isInexact);
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

/** With the examples and defaults of the schema where nothing is typed. The same if the schema suggests nothing more. */
export function fill(field: Field, typed: Typed): Typed {
  if (typed.mode === "form") {
    const draft = filled(field, typed.draft);
    return isSame(draft, typed.draft) ? typed : { mode: "form", draft };
  }
  const { value } = writeJson(typed.text.trim() || "{}", "$");
  const { value: suggested } = write(field, filled(field, startOf(field, true)), true);
  if (!isObject(value) || !isObject(suggested)) return typed;
  const both = { ...suggested, ...value };
  return isSame(both, value) ? typed : { mode: "json", text: JSON.stringify(both, null, 2) };
}

/** Whether the schema suggests anything. */
export function hasSuggestions(field: Field): boolean {
  const blank = begin(field);
  return fill(field, blank) !== blank;
}
