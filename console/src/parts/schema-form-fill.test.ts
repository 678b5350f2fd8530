import { expect, test } from "vitest";
import { startOf } from "./schema-form-draft";
import { filled } from "./schema-form-fill";
import { fieldOf } from "./schema-form-model";
import { write } from "./schema-form-write";

const madeOf = (schema: object, typed?: object) => {
  const field = fieldOf(schema);
  const draft = { ...startOf(field, true), ...typed } as ReturnType<typeof startOf>;
  return write(field, filled(field, draft), true).value;
};

test("blank fields get their first example, or else their default", () => {
  const schema = {
    type: "object",
    required: ["path"],
    properties: {
      path: { type: "string", examples: ["src/app.py", "README.md"] },
      count: { type: "integer", default: 10 },
      format: { enum: ["short", "long"], example: "long" },
      paths: { type: "array", items: { type: "string" }, examples: [["a", "b"]] },
      other: { type: "string" },
    },
  };
  expect(madeOf(schema)).toEqual({ path: "src/app.py", count: 10, format: "long", paths: ["a", "b"] });
  expect(madeOf(schema, { members: [{ text: "mine" }, { text: "3" }] })).toMatchObject({
    path: "mine",
    count: 3,
  });
});

test("an example of the whole fills its members", () => {
  const schema = {
    type: "object",
    examples: [{ from: "Ada", point: { lat: 1 } }],
    properties: {
      from: { type: "string", default: "anyone" },
      point: { type: "object", required: ["lat"], properties: { lat: { type: "number" } } },
    },
  };
  expect(madeOf(schema)).toEqual({ from: "Ada", point: { lat: 1 } });
});

test("an example that does not fit its field is passed over", () => {
  const schema = { type: "object", properties: { n: { type: "integer", examples: ["x", 7] } } };
  expect(madeOf(schema)).toEqual({ n: 7 });
  expect(madeOf({ type: "object", properties: { n: { type: "integer", examples: ["x"] } } })).toEqual({});
});
