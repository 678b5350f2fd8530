/** Fills blank fields of a form with what the schema suggests: its examples and defaults. Nothing typed is replaced. */
import { draftOf } from "./schema-form-draft";
import { type Field, isObject, type Json } from "./schema-form-model";
import type { Draft } from "./schema-form-write";

/** What the schema suggests for a field as a whole. */
function suggestionOf(field: Field): Json | undefined {
  return field.examples.find((one) => draftOf(field, one) !== null) ?? field.initial;
}

function memberOf(value: Json | undefined, name: string): Json | undefined {
  return isObject(value) && Object.hasOwn(value, name) ? value[name] : undefined;
}

function isBlank(draft: Draft): boolean {
  if (draft === null) return true;
  if ("text" in draft) return draft.text === "";
  return "items" in draft && draft.items.length === 0;
}

/** `draft` with its blank fields filled. `above`: what an example of the whole has for this field. */
export function filled(field: Field, draft: Draft, above?: Json): Draft {
  const value = above ?? suggestionOf(field);
  if (field.kind === "group" && draft !== null && "members" in draft) {
    const members = field.members.map((one, place) =>
      filled(one.field, draft.members[place] ?? null, memberOf(value, one.name)),
    );
    return { members };
  }
  if (field.kind === "variants" && draft !== null && "variant" in draft) {
    const option = field.options[draft.variant];
    return option ? { ...draft, of: filled(option, draft.of) } : draft;
  }
  if (!isBlank(draft) || value === undefined) return draft;
  return draftOf(field, value) ?? draft;
}
