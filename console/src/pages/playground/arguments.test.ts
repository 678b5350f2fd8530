import { expect, test } from "vitest";
import { fieldOf } from "@/parts/schema-form-model";
import { begin, fill, hasSuggestions, read, toForm, toJson } from "./arguments";

const FIELD = fieldOf({
  type: "object",
  required: ["a"],
  properties: { a: { type: "string" }, b: { type: "integer" } },
});

test("a form turns into JSON and back, with all that was typed", () => {
  const form = { mode: "form", draft: { members: [{ text: "x" }, { text: "3" }] } } as const;
  const json = toJson(FIELD, form);
  expect(json).toEqual({ mode: "json", text: '{\n  "a": "x",\n  "b": 3\n}' });
  expect(toForm(FIELD, json)).toEqual(form);
  expect(read(FIELD, json).value).toEqual({ a: "x", b: 3 });
});

test.each(["{", "[]", '{"c": 1}', '{"a": 7}'])("%s stays JSON: the form cannot show it", (text) =>
  expect(toForm(FIELD, { mode: "json", text })).toBeNull(),
);

test("nothing but an object is sent", () => {
  expect(read(FIELD, { mode: "json", text: "[1]" })).toMatchObject({ value: null, troubles: [{ at: "$" }] });
  expect(read(FIELD, { mode: "json", text: "" }).value).toEqual({});
  expect(read(FIELD, begin(FIELD)).value).toBeNull();
});

test("where a schema makes no form, one begins with JSON", () => {
  const field = fieldOf({ anyOf: [{ type: "object" }, { type: "array" }] });
  expect(begin(field)).toEqual({ mode: "json", text: "{}" });
  expect(toForm(field, { mode: "json", text: "{}" })).toBeNull();
});

test("a default of the whole is not filled in", () => {
  const field = fieldOf({ type: "object", default: { a: "x" }, properties: { a: { type: "string" } } });
  expect(read(field, begin(field)).value).toEqual({});
});

const WITH_EXAMPLES = fieldOf({
  type: "object",
  required: ["a"],
  properties: { a: { type: "string", examples: ["x"] }, b: { type: "integer", default: 3 } },
});

test("examples fill what is blank, in the form and in JSON", () => {
  expect(hasSuggestions(WITH_EXAMPLES)).toBe(true);
  expect(hasSuggestions(FIELD)).toBe(false);
  const form = fill(WITH_EXAMPLES, begin(WITH_EXAMPLES));
  expect(read(WITH_EXAMPLES, form).value).toEqual({ a: "x", b: 3 });
  expect(fill(WITH_EXAMPLES, form)).toBe(form);
  const json = fill(WITH_EXAMPLES, { mode: "json", text: '{"b": 4}' });
  expect(read(WITH_EXAMPLES, json).value).toEqual({ a: "x", b: 4 });
  const broken = { mode: "json", text: "{" } as const;
  expect(fill(WITH_EXAMPLES, broken)).toBe(broken);
});

test("a number that JavaScript cannot hold is not sent as another one", () => {
  const typed = { mode: "json", text: '{"a": [12345678901234567890]}' } as const;
  expect(read(FIELD, typed)).toMatchObject({ value: null, troubles: [{ at: "$" }] });
});
