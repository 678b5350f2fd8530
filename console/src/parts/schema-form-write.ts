/** What is typed into the form of a schema, and the JSON that it makes, or what is wrong with it. */
import { type Field, isObject, type Json, type Member } from "./schema-form-model";

/** As the field's kind has it. Null: left out. */
export type Draft =
  | null
  | { readonly text: string }
  | { readonly isOn: boolean }
  | { readonly chosen: number }
  | { readonly items: readonly Entry[] }
  | { readonly members: readonly Draft[] }
  | { readonly variant: number; readonly of: Draft };

/** One entry of a list. The number stays with it when others go. */
export interface Entry {
  readonly id: number;
  readonly of: Draft;
}

export interface Trouble {
  /** Where, as `placeOf` has it. */
  readonly at: string;
  readonly says: string;
  /** The input is incomplete, not wrong. */
  readonly isMissing: boolean;
}

export interface Written {
  /** Undefined: it is left out. */
  readonly value: Json | undefined;
  readonly troubles: readonly Trouble[];
}

export const ROOT = "$";
const DEEPEST_JSON = 64;

export function placeOf(at: string, step: string | number): string {
  return `${at}/${String(step).replaceAll("~", "~0").replaceAll("/", "~1")}`;
}

const good = (value: Json | undefined): Written => ({ value, troubles: [] });
const bad = (at: string, says: string, isMissing = false): Written => ({
  value: undefined,
  troubles: [{ at, says, isMissing }],
});

/** The JSON of a draft, and all that is wrong with it. */
export function write(field: Field, draft: Draft, isRequired: boolean, place: string = ROOT): Written {
  if (draft === null || ("text" in draft && draft.text === "")) return writeNothing(field, isRequired, place);
  if ("isOn" in draft) return good(draft.isOn);
  if ("text" in draft) return writeText(field, draft.text, place);
  return writeBuilt(field, draft, isRequired, place);
}

function writeNothing(field: Field, isRequired: boolean, place: string): Written {
  if (!isRequired) return good(undefined);
  if (field.isNullable) return good(null);
  return bad(place, NEEDED[field.kind] ?? "Required.", true);
}

type Built = Exclude<Draft, null | { readonly text: string } | { readonly isOn: boolean }>;

function writeBuilt(field: Field, draft: Built, isRequired: boolean, place: string): Written {
  if (field.kind === "choice" && "chosen" in draft) return good(field.options[draft.chosen]);
  if (field.kind === "list" && "items" in draft) return writeList(field, draft.items, isRequired, place);
  if (field.kind === "group" && "members" in draft) return writeGroup(field.members, draft.members, place);
  const option = field.kind === "variants" && "variant" in draft ? field.options[draft.variant] : undefined;
  if (option === undefined || !("variant" in draft)) return bad(place, "Choose one.", true);
  return write(option, draft.of, true, placeOf(place, draft.variant));
}

const NEEDED: Partial<Record<Field["kind"], string>> = {
  text: "Required. For an empty text, use JSON.",
  choice: "Choose one.",
};

function writeText(field: Field, text: string, place: string): Written {
  if (field.kind === "raw") return writeJson(text, place);
  const says =
    field.kind === "number"
      ? numberTrouble(field, text)
      : field.kind === "text"
        ? textTrouble(field, text)
        : "";
  if (says !== "") return bad(place, says);
  return good(field.kind === "number" ? Number(text) : text);
}

/** What JSON says, or why it does not. */
export function writeJson(text: string, place: string): Written {
  try {
    const value = JSON.parse(text) as Json;
    return depthOf(value) > DEEPEST_JSON ? bad(place, "Nested too deeply.") : good(value);
  } catch (error) {
    return bad(place, `Invalid JSON: ${error instanceof Error ? error.message : ""}`);
  }
}

function depthOf(value: Json): number {
  let depth = 0;
  for (let level: Json[] = [value]; level.length > 0 && depth <= DEEPEST_JSON; depth += 1)
    level = level.flatMap((one) => (Array.isArray(one) ? one : isObject(one) ? Object.values(one) : []));
  return depth;
}

type Of<K extends Field["kind"]> = Extract<Field, { kind: K }>;

function numberTrouble(field: Of<"number">, text: string): string {
  const value = Number(text);
  if (text.trim() === "" || !Number.isFinite(value)) return "Enter a number.";
  if (field.isInteger && !Number.isInteger(value)) return "Enter a whole number.";
  if (Number.isInteger(value) && !Number.isSafeInteger(value)) return "Too large to send exactly.";
  if (value < field.least) return `Must be at least ${field.least}.`;
  return value > field.most ? `Must be at most ${field.most}.` : "";
}

const UUID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
/** Formats that the browser checks without running a foreign pattern. */
const FORMATS: Readonly<Record<string, readonly [(text: string) => boolean, string]>> = {
  uri: [(text) => URL.canParse(text), "Enter a URL."],
  date: [(text) => /^\d{4}-\d\d-\d\d$/.test(text) && !Number.isNaN(Date.parse(text)), "Enter a date."],
  "date-time": [(text) => !Number.isNaN(Date.parse(text)), "Enter a date with a time."],
  email: [(text) => /^[^@\s]+@[^@\s]+$/.test(text), "Enter an e-mail address."],
  uuid: [(text) => UUID.test(text), "Enter a UUID."],
};

function textTrouble(field: Of<"text">, text: string): string {
  const length = [...text].length;
  if (length < field.least) return `Enter at least ${field.least} characters.`;
  if (length > field.most) return `Enter at most ${field.most} characters.`;
  const format = Object.hasOwn(FORMATS, field.format) ? FORMATS[field.format] : undefined;
  return format && !format[0](text) ? format[1] : "";
}

function writeList(field: Of<"list">, items: readonly Entry[], isRequired: boolean, place: string): Written {
  if (items.length === 0 && !isRequired && field.least === 0) return good(undefined);
  const written = items.map((one) => write(field.item, one.of, true, placeOf(place, one.id)));
  const troubles = written.flatMap((one) => one.troubles);
  if (items.length < field.least)
    troubles.push({ at: place, says: `Add at least ${field.least}.`, isMissing: true });
  if (items.length > field.most)
    troubles.push({ at: place, says: `At most ${field.most} are allowed.`, isMissing: false });
  return { value: written.map((one) => one.value ?? null), troubles };
}

function writeGroup(members: readonly Member[], drafts: readonly Draft[], place: string): Written {
  const written = members.map((one, index) => ({
    name: one.name,
    ...write(one.field, drafts[index] ?? null, one.isRequired, placeOf(place, one.name)),
  }));
  const given = written.filter((one) => one.value !== undefined);
  return {
    value: Object.fromEntries(given.map((one) => [one.name, one.value as Json])),
    troubles: written.flatMap((one) => one.troubles),
  };
}
