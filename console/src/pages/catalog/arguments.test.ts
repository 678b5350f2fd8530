import { expect, test } from "vitest";
import { fieldOf } from "@/parts/schema-form-model";
import { begin, read, toForm, toJson } from "./arguments";

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
