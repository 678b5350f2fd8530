import { expect, test } from "vitest";
import { DEEPEST, type Field, fieldOf, MOST_FIELDS, resolve } from "./schema-form-model";

const only = (schema: unknown): Field => {
  const field = fieldOf({ type: "object", properties: { a: schema } });
  if (field.kind !== "group") throw new Error(field.kind);
  return field.members[0]?.field as Field;
};

function all(field: Field): Field[] {
  const below =
    field.kind === "group"
      ? field.members.map((one) => one.field)
      : field.kind === "variants"
        ? field.options
        : field.kind === "list"
          ? [field.item]
          : [];
  return [field, ...below.flatMap(all)];
}

test.each([
  [{ type: "string" }, "text"],
  [{ type: "string", enum: ["a", "b"] }, "choice"],
  [{ const: 7 }, "choice"],
  [{ type: "integer" }, "number"],
  [{ type: "number" }, "number"],
  [{ type: "boolean" }, "flag"],
  [{ type: "array", items: { type: "string" } }, "list"],
  [{ type: "array" }, "raw"],
  [{ type: "array", prefixItems: [{}], items: {} }, "raw"],
  [{ type: "object", properties: { b: {} } }, "group"],
  [{ properties: { b: {} } }, "group"],
  [{ type: "object" }, "raw"],
  [{ type: "object", additionalProperties: false }, "group"],
  [{ oneOf: [{ type: "string" }, { type: "integer" }] }, "variants"],
  [{ oneOf: [{ const: "a" }, { const: "b" }] }, "choice"],
  [{ type: ["string", "integer"] }, "variants"],
  [{ allOf: [{ type: "string" }] }, "text"],
  [{ allOf: [{ type: "object" }, { type: "object" }] }, "raw"],
  [{}, "raw"],
  [true, "raw"],
  [{ type: "weird" }, "raw"],
  [{ enum: Array.from({ length: 5_000 }, (_one, index) => index) }, "raw"],
])("%j is a field of the kind %s", (schema, kind) => expect(only(schema).kind).toBe(kind));

test.each([{ type: ["string", "null"] }, { anyOf: [{ type: "string" }, { type: "null" }] }])(
  "%j is a text that may be null",
  (schema) => {
    expect(only(schema)).toMatchObject({ kind: "text", isNullable: true });
  },
);

test("what a schema says of a field is in it", () => {
  const field = only({
    type: "integer",
    title: "T",
    description: "D",
    minimum: 1,
    maximum: 9,
    exclusiveMinimum: 0,
    default: 3,
  });
  expect(field).toMatchObject({
    type: "integer",
    title: "T",
    description: "D",
    initial: 3,
    least: 1,
    most: 9,
  });
  expect(field.limits).toEqual(["at least 1", "at most 9", "above 0"]);
});

test("a reference within the schema is followed, and its siblings count", () => {
  const field = fieldOf({
    type: "object",
    properties: { a: { $ref: "#/$defs/a~1b%20c", description: "here" } },
    $defs: { "a/b c": { type: "string", description: "there" } },
  });
  expect(all(field)[1]).toMatchObject({ kind: "text", description: "here" });
});

test.each([
  "https://example.org/schema",
  "other.json#/a",
  "#/nothing",
  "#/__proto__",
  "#/constructor/prototype",
  "#%",
])("SSR-6: %j refers to nothing", (ref) => {
  expect(resolve({ a: 1 }, ref)).toBeUndefined();
  expect(only({ $ref: ref }).kind).toBe("raw");
});

test("a recursive schema ends", () => {
  const node = {
    type: "object",
    properties: { value: { type: "string" }, next: { type: "array", items: { $ref: "#/$defs/node" } } },
  };
  const field = fieldOf({ $ref: "#/$defs/node", $defs: { node } });
  const kinds = all(field).map((one) => one.kind);
  expect(kinds.filter((one) => one === "raw")).toHaveLength(1);
  expect(fieldOf({ $ref: "#" }).kind).toBe("raw");
  expect(
    fieldOf({ $ref: "#/$defs/a", $defs: { a: { $ref: "#/$defs/b" }, b: { $ref: "#/$defs/a" } } }).kind,
  ).toBe("raw");
});

test("what lies too deep is written as JSON", () => {
  let schema: object = { type: "string" };
  for (let depth = 0; depth < 5_000; depth += 1) schema = { type: "object", properties: { a: schema } };
  const fields = all(fieldOf(schema));
  expect(fields).toHaveLength(DEEPEST + 2);
  expect(fields.at(-1)).toMatchObject({ kind: "raw", why: "too deeply nested for a form" });
});

test("a form has no more fields than it may have, whatever the schema", () => {
  const wide = Object.fromEntries(
    Array.from({ length: 10_000 }, (_one, index) => [`f${index}`, { type: "string" }]),
  );
  expect(fieldOf({ type: "object", properties: wide }).kind).toBe("raw");
  const twenty = Object.fromEntries(
    Array.from({ length: 20 }, (_one, index) => [`f${index}`, { $ref: "#/$defs/n" }]),
  );
  const bushy = {
    $ref: "#/$defs/n",
    $defs: {
      n: {
        anyOf: [
          { type: "object", properties: twenty },
          { type: "array", items: { $ref: "#" } },
        ],
      },
    },
  };
  expect(all(fieldOf(bushy)).length).toBeLessThanOrEqual(MOST_FIELDS + 1);
});

test("members may be called anything", () => {
  const schema = JSON.parse(
    '{"type":"object","properties":{"__proto__":{"type":"string"},"constructor":{"type":"integer"}}}',
  );
  const field = fieldOf(schema);
  expect(field.kind === "group" && field.members.map((one) => [one.name, one.field.kind])).toEqual([
    ["__proto__", "text"],
    ["constructor", "number"],
  ]);
});

test.each([null, 7, "text", [], { type: 7 }, { type: "object", properties: [] }, { properties: 7 }])(
  "%j is no schema, and still something can be written",
  (schema) => expect(["raw", "group"]).toContain(fieldOf(schema).kind),
);
