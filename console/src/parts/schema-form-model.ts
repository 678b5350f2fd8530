/** A JSON schema as fields of a form. The schema is untrusted: depth and number of fields are bounded, nothing outside of
 *  the schema is read, and patterns are shown but never run. */

export type Json = null | boolean | number | string | readonly Json[] | JsonObject;
export interface JsonObject {
  readonly [name: string]: Json;
}

export const MOST_FIELDS = 500;
export const DEEPEST = 8;
/** How often a schema may contain itself. */
const RECURSIONS = 2;
/** How many references may lead to one field. */
const REFERENCES = 32;
const CHOICES = 200;

export interface Common {
  /** In words: what a value of it is. */
  readonly type: string;
  readonly title: string;
  readonly description: string;
  /** What it may not exceed, in words. */
  readonly limits: readonly string[];
  readonly initial: Json | undefined;
  readonly examples: readonly Json[];
  /** `null` is a value of it, too. */
  readonly isNullable: boolean;
}

export interface Member {
  readonly name: string;
  readonly isRequired: boolean;
  readonly field: Field;
}

export type Field = Common &
  (
    | { readonly kind: "text"; readonly format: string; readonly least: number; readonly most: number }
    | { readonly kind: "number"; readonly isInteger: boolean; readonly least: number; readonly most: number }
    | { readonly kind: "flag" }
    | { readonly kind: "choice"; readonly options: readonly Json[] }
    | { readonly kind: "list"; readonly item: Field; readonly least: number; readonly most: number }
    | { readonly kind: "group"; readonly members: readonly Member[] }
    | { readonly kind: "variants"; readonly options: readonly Field[] }
    /** To be written as JSON. */
    | { readonly kind: "raw"; readonly why: string }
  );

interface Walk {
  readonly root: Json;
  /** How many fields may still be made, wherever. */
  readonly budget: { left: number };
  readonly depth: number;
  /** The references that led here. */
  readonly refs: readonly string[];
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The form of a schema. */
export function fieldOf(schema: unknown): Field {
  const root = schema as Json;
  return make(root, { root, budget: { left: MOST_FIELDS }, depth: 0, refs: [] });
}

function own(schema: JsonObject, name: string): Json | undefined {
  return Object.hasOwn(schema, name) ? schema[name] : undefined;
}

function textAt(schema: JsonObject, name: string): string {
  const value = own(schema, name);
  return typeof value === "string" ? value : "";
}

function numberAt(schema: JsonObject, name: string, otherwise: number): number {
  const value = own(schema, name);
  return typeof value === "number" ? value : otherwise;
}

function listAt(schema: JsonObject, name: string): readonly Json[] {
  const value = own(schema, name);
  return Array.isArray(value) ? value : [];
}

const below = (walk: Walk): Walk => ({ ...walk, depth: walk.depth + 1 });

/** Take `count` fields from the remaining ones; false if fewer are left. */
function takes(walk: Walk, count: number): boolean {
  if (count > walk.budget.left) return false;
  walk.budget.left -= count;
  return true;
}

function make(schema: Json, walk: Walk): Field {
  if (!isObject(schema)) return raw({}, "any value");
  const ref = own(schema, "$ref");
  if (typeof ref === "string") return makeReferred(schema, ref, walk);
  if (walk.depth > DEEPEST) return raw(schema, "too deeply nested for a form");
  const constant = own(schema, "const");
  if (constant !== undefined) return choice(schema, [constant]);
  if (Array.isArray(own(schema, "enum"))) return choice(schema, listAt(schema, "enum"));
  return makeJoined(schema, walk) ?? makeTyped(schema, walk);
}

function makeReferred(schema: JsonObject, ref: string, walk: Walk): Field {
  const target = resolve(walk.root, ref);
  if (!isObject(target)) return raw(schema, "unresolved $ref");
  if (walk.refs.filter((one) => one === ref).length >= RECURSIONS || walk.refs.length >= REFERENCES)
    return raw(schema, "recursive");
  const { $ref: _ref, ...siblings } = schema;
  return make({ ...target, ...siblings }, { ...walk, refs: [...walk.refs, ref] });
}

/** What a reference within the schema leads to. */
export function resolve(root: Json, ref: string): Json | undefined {
  if (ref !== "#" && !ref.startsWith("#/")) return undefined;
  let found: Json | undefined = root;
  for (const step of ref.split("/").slice(1)) {
    const name = decoded(step).replaceAll("~1", "/").replaceAll("~0", "~");
    if (Array.isArray(found)) found = found[Number(name)];
    else if (isObject(found)) found = own(found, name);
    else return undefined;
  }
  return found;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function makeJoined(schema: JsonObject, walk: Walk): Field | null {
  const all = listAt(schema, "allOf");
  if (all.length === 1 && isObject(all[0])) {
    const { allOf: _all, ...siblings } = schema;
    return make({ ...all[0], ...siblings }, below(walk));
  }
  if (all.length > 1) return raw(schema, "allOf combines several schemas");
  const either = [...listAt(schema, "oneOf"), ...listAt(schema, "anyOf")];
  if (either.length === 0) return null;
  // Where both the whole and its variants have members, the variants mostly say which of them go together.
  if (isObject(own(schema, "properties"))) return null;
  return makeVariants(schema, either, walk);
}

function isNull(schema: Json): boolean {
  return isObject(schema) && (own(schema, "type") === "null" || own(schema, "const") === null);
}

function makeVariants(schema: JsonObject, either: readonly Json[], walk: Walk): Field {
  const { oneOf: _one, anyOf: _any, ...siblings } = schema;
  const others = either.filter((one) => !isNull(one));
  const isNullable = others.length < either.length;
  if (others.length === 1 && isObject(others[0]))
    return { ...make({ ...others[0], ...siblings }, below(walk)), isNullable: true };
  const constants = others.map((one) => (isObject(one) ? own(one, "const") : undefined));
  if (constants.length > 0 && constants.every((one) => one !== undefined))
    return { ...choice(schema, constants as Json[]), isNullable };
  if (others.length === 0) return choice(schema, [null]);
  if (!takes(walk, others.length)) return raw(schema, "too many variants for a form");
  const options = others.map((one) => make(one, below(walk)));
  const type = [...new Set(options.map((one) => one.type))].join(" or ");
  return { ...common(schema, type), kind: "variants", options, isNullable };
}

function makeTyped(schema: JsonObject, walk: Walk): Field {
  const type = own(schema, "type");
  if (Array.isArray(type)) {
    const { type: _type, ...siblings } = schema;
    return makeVariants(
      siblings,
      type.map((one) => ({ ...siblings, type: one })),
      walk,
    );
  }
  switch (type ?? (isObject(own(schema, "properties")) ? "object" : "")) {
    case "string":
      return text(schema);
    case "integer":
    case "number":
      return number(schema, type === "integer");
    case "boolean":
      return { ...common(schema, "boolean"), kind: "flag" };
    case "null":
      return choice(schema, [null]);
    case "array":
      return list(schema, walk);
    case "object":
      return group(schema, walk);
    default:
      return raw(schema, "any value");
  }
}

function text(schema: JsonObject): Field {
  const least = numberAt(schema, "minLength", 0);
  const most = numberAt(schema, "maxLength", Number.POSITIVE_INFINITY);
  const pattern = textAt(schema, "pattern");
  const format = textAt(schema, "format");
  const limits = [...bounds(least, most, "characters"), ...(pattern ? [`pattern /${pattern}/`] : [])];
  const type = format ? `string (${format})` : "string";
  return { ...common(schema, type, limits), kind: "text", format, least, most };
}

function number(schema: JsonObject, isInteger: boolean): Field {
  const least = numberAt(schema, "minimum", Number.NEGATIVE_INFINITY);
  const most = numberAt(schema, "maximum", Number.POSITIVE_INFINITY);
  const above = numberAt(schema, "exclusiveMinimum", Number.NaN);
  const under = numberAt(schema, "exclusiveMaximum", Number.NaN);
  const limits = [
    ...bounds(least, most, ""),
    ...(Number.isNaN(above) ? [] : [`above ${above}`]),
    ...(Number.isNaN(under) ? [] : [`below ${under}`]),
  ];
  return {
    ...common(schema, isInteger ? "integer" : "number", limits),
    kind: "number",
    isInteger,
    least,
    most,
  };
}

function list(schema: JsonObject, walk: Walk): Field {
  const items = own(schema, "items");
  if (!isObject(items) || own(schema, "prefixItems") !== undefined)
    return raw(schema, "list of any values", "array");
  if (!takes(walk, 1)) return raw(schema, "too many fields for a form", "array");
  const item = make(items, below(walk));
  const least = numberAt(schema, "minItems", 0);
  const most = numberAt(schema, "maxItems", Number.POSITIVE_INFINITY);
  const limits = bounds(least, most, "entries");
  return { ...common(schema, `list of ${item.type}`, limits), kind: "list", item, least, most };
}

function group(schema: JsonObject, walk: Walk): Field {
  const properties = own(schema, "properties");
  const names = isObject(properties) ? Object.keys(properties) : [];
  if (!isObject(properties) || names.length === 0) {
    const isClosed = own(schema, "additionalProperties") === false || walk.depth === 0;
    if (!isClosed) return raw(schema, "object with any members", "object");
    return { ...common(schema, "object"), kind: "group", members: [] };
  }
  if (!takes(walk, names.length)) return raw(schema, "too many members for a form", "object");
  const required = new Set(listAt(schema, "required"));
  const members = names.map((name) => ({
    name,
    isRequired: required.has(name),
    field: make(properties[name] as Json, below(walk)),
  }));
  return { ...common(schema, "object"), kind: "group", members };
}

function choice(schema: JsonObject, options: readonly Json[]): Field {
  const values = options.filter((one) => one !== null);
  if (values.length > CHOICES) return raw(schema, "too many choices for a form");
  const isOnlyNull = values.length === 0 && options.length > 0;
  return {
    ...common(schema, isOnlyNull ? "null" : "choice"),
    kind: "choice",
    options: isOnlyNull ? [null] : values,
    isNullable: values.length < options.length && !isOnlyNull,
  };
}

function raw(schema: JsonObject, why: string, type = "JSON"): Field {
  return { ...common(schema, type), kind: "raw", why };
}

function common(schema: JsonObject, type: string, limits: readonly string[] = []): Common {
  const example = own(schema, "example");
  return {
    type,
    title: textAt(schema, "title"),
    description: textAt(schema, "description"),
    limits,
    initial: own(schema, "default"),
    examples: [...listAt(schema, "examples"), ...(example === undefined ? [] : [example])],
    isNullable: false,
  };
}

function bounds(least: number, most: number, what: string): string[] {
  const unit = what === "" ? "" : ` ${what}`;
  return [
    ...(Number.isFinite(least) && least !== 0 ? [`at least ${least}${unit}`] : []),
    ...(Number.isFinite(most) ? [`at most ${most}${unit}`] : []),
  ];
}
