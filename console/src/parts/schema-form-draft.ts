/** What the form of a schema begins with, and what it shows of a value that is there already. */
import { type Field, isObject, type Json } from "./schema-form-model";
import { type Draft, write } from "./schema-form-write";

/** What the form of a field begins with. What need not be given is left out: who serves the tool knows its defaults. */
export function startOf(field: Field, isRequired: boolean): Draft {
  if (!isRequired) return null;
  if (field.initial !== undefined) return draftOf(field, field.initial);
  return blankOf(field);
}

/** A field that is given, with nothing in it yet. */
export function blankOf(field: Field): Draft {
  switch (field.kind) {
    case "flag":
      return { isOn: false };
    case "choice":
      return field.options.length === 1 ? { chosen: 0 } : null;
    case "list":
      return { items: [] };
    case "group":
      return { members: field.members.map((one) => startOf(one.field, one.isRequired)) };
    case "variants":
      return { variant: 0, of: field.options[0] ? blankOf(field.options[0]) : null };
    default:
      return { text: "" };
  }
}

/** The draft that makes `value`; what does not fit the field is left out. */
export function draftOf(field: Field, value: Json | undefined): Draft {
  if (value === undefined || (value === null && field.isNullable)) return null;
  switch (field.kind) {
    case "flag":
      return typeof value === "boolean" ? { isOn: value } : null;
    case "choice":
      return chosenOf(field.options, value);
    case "list":
      return Array.isArray(value)
        ? { items: value.map((one, id) => ({ id, of: draftOf(field.item, one) })) }
        : null;
    case "group":
      return isObject(value)
        ? { members: field.members.map((one) => draftOf(one.field, at(value, one.name))) }
        : null;
    case "variants":
      return variantOf(field.options, value);
    case "raw":
      return { text: JSON.stringify(value, null, 2) };
    case "text":
      return typeof value === "string" ? { text: value } : null;
    case "number":
      return typeof value === "number" ? { text: String(value) } : null;
  }
}

function chosenOf(options: readonly Json[], value: Json): Draft {
  const chosen = options.findIndex((one) => isSame(one, value));
  return chosen < 0 ? null : { chosen };
}

function variantOf(options: readonly Field[], value: Json): Draft {
  const variant = options.findIndex((one) => fits(one, value));
  const option = options[variant];
  return option ? { variant, of: draftOf(option, value) } : null;
}

function at(value: { readonly [name: string]: Json }, name: string): Json | undefined {
  return Object.hasOwn(value, name) ? value[name] : undefined;
}

function isSame(a: Json, b: Json): boolean {
  return JSON.stringify(a) === JSON.stringify(b);
}

/** A draft that shows all of `value`; null where the field cannot. Something may still be missing in it. */
export function shownBy(field: Field, value: Json): Draft {
  const draft = draftOf(field, value);
  const { value: again = null, troubles } = write(field, draft, true);
  const isWhole = troubles.every((one) => one.isMissing) && isSame(sorted(again), sorted(value));
  return isWhole ? draft : null;
}

function fits(field: Field, value: Json): boolean {
  return write(field, shownBy(field, value), true).troubles.length === 0;
}

function sorted(value: Json): Json {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isObject(value)) return value;
  const entries = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(entries.map(([name, one]) => [name, sorted(one)]));
}
