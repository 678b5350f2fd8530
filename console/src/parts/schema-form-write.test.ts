import { expect, test } from "vitest";
import { blankOf, draftOf, shownBy, startOf } from "./schema-form-draft";
import { type Field, fieldOf, type Json } from "./schema-form-model";
import { type Draft, write } from "./schema-form-write";

const SCHEMA = {
  type: "object",
  required: ["path", "mode", "deep", "when"],
  properties: {
    path: { type: "string", minLength: 2 },
    mode: { enum: ["r", "w", 7] },
    lines: { type: "integer", minimum: 1, maximum: 10 },
    ratio: { type: "number" },
    force: { type: "boolean" },
    tags: { type: "array", items: { type: "string" }, maxItems: 2 },
    deep: { type: "object", required: ["x"], properties: { x: { type: "boolean" } } },
    either: {
      oneOf: [
        { type: "string" },
        { type: "object", required: ["y"], properties: { y: { type: "integer" } } },
      ],
    },
    when: { type: ["string", "null"], format: "date" },
    any: {},
  },
};
const FIELD = fieldOf(SCHEMA);
const says = (draft: Draft) => write(FIELD, draft, true).troubles.map((one) => [one.at, one.says]);

test.each<{ readonly [name: string]: Json }>([
  { path: "/a", mode: "r", deep: { x: true }, when: null },
  {
    path: "/a",
    mode: 7,
    lines: 3,
    ratio: 0.5,
    force: false,
    tags: ["a", "b"],
    deep: { x: false },
    either: { y: 2 },
    when: "2026-01-31",
    any: [1, { a: null }],
  },
  { path: "/a", mode: "w", deep: { x: true }, when: null, either: "text" },
])("what a form shows of %j is what it makes again", (value) => {
  const draft = shownBy(FIELD, value);
  expect(draft).not.toBeNull();
  expect(write(FIELD, draft, true)).toEqual({ value, troubles: [] });
});

test("a form begins with what must be given, and the rest is left out", () => {
  const { value, troubles } = write(FIELD, startOf(FIELD, true), true);
  expect(value).toEqual({ deep: { x: false }, when: null });
  expect(troubles.map((one) => [one.at, one.isMissing])).toEqual([
    ["$/path", true],
    ["$/mode", true],
  ]);
});

test("the form starts with the defaults of required fields; the tool applies the others", () => {
  const field = fieldOf({
    type: "object",
    required: ["a"],
    properties: { a: { type: "integer", default: 4 }, b: { type: "integer", default: 5 } },
  });
  expect(write(field, startOf(field, true), true).value).toEqual({ a: 4 });
});

test("each field says what is wrong with it", () => {
  const whole = { path: "/a", mode: "r", deep: { x: true }, when: null };
  const draft = draftOf(FIELD, whole);
  if (draft === null || !("members" in draft) || FIELD.kind !== "group") throw new Error("no group");
  const names = FIELD.members.map((one) => one.name);
  const typed = (name: string, of: Draft) => ({
    members: draft.members.map((one, index) => (names[index] === name ? of : one)),
  });

  expect(says(draft)).toEqual([]);
  expect(says(typed("path", { text: "a" }))).toEqual([["$/path", "Enter at least 2 characters."]]);
  expect(says(typed("path", { text: "" }))).toEqual([["$/path", "Required. For an empty text, use JSON."]]);
  expect(says(typed("lines", { text: "1.5" }))).toEqual([["$/lines", "Enter a whole number."]]);
  expect(says(typed("lines", { text: "x" }))).toEqual([["$/lines", "Enter a number."]]);
  expect(says(typed("lines", { text: "0" }))).toEqual([["$/lines", "Must be at least 1."]]);
  expect(says(typed("lines", { text: "11" }))).toEqual([["$/lines", "Must be at most 10."]]);
  expect(says(typed("ratio", { text: "90071992547409931" }))).toEqual([
    ["$/ratio", "Too large to send exactly."],
  ]);
  expect(says(typed("when", { text: "31.1.2026" }))).toEqual([["$/when", "Enter a date."]]);
  expect(says(typed("any", { text: "{" }))[0]?.[1]).toContain("Invalid JSON");
  const three = [0, 1, 2].map((id) => ({ id, of: { text: "t" } }));
  expect(says(typed("tags", { items: three }))).toEqual([["$/tags", "At most 2 are allowed."]]);
  expect(says(typed("tags", { items: [{ id: 5, of: null }] }))[0]?.[0]).toBe("$/tags/5");
  expect(
    says(typed("either", { variant: 1, of: blankOf(fieldOf(SCHEMA.properties.either.oneOf[1])) })),
  ).toEqual([["$/either/1/y", "Required."]]);
});

test.each<[string, Json]>([
  ["a member that the schema does not have", { path: "/a", other: 1 }],
  ["a value of another type", { path: 7 }],
  ["a list that holds another type", { tags: [1] }],
  ["no object", [1]],
  ["a choice that there is not", { mode: "x" }],
])("a form does not show %s: it would be lost", (_what, value) => expect(shownBy(FIELD, value)).toBeNull());

test("a form shows what still lacks something", () => {
  expect(shownBy(FIELD, { path: "/a", deep: { x: true }, when: null })).not.toBeNull();
});

test("names of built-in object members are names like any other", () => {
  const field: Field = fieldOf(JSON.parse('{"type":"object","properties":{"__proto__":{"type":"string"}}}'));
  const { value } = write(field, { members: [{ text: "a" }] }, true);
  expect(JSON.stringify(value)).toBe('{"__proto__":"a"}');
  expect(shownBy(field, {})).toEqual({ members: [null] });
});

test("patterns of a schema are never run", () => {
  const field = fieldOf({ type: "string", pattern: "^(a+)+$" });
  expect(write(field, { text: `${"a".repeat(60)}!` }, true).troubles).toEqual([]);
});
