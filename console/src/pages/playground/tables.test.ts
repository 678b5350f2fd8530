import { expect, test } from "vitest";
import { jsonIn, MOST_COLUMNS, MOST_ROWS, repeats, tablesOf } from "./tables";

const cell = (text: string, isNumber = false) => ({ text, isNumber });

test("a list of objects is a table with the members of all of them as columns", () => {
  const [table] = tablesOf([
    { a: 1, b: "x" },
    { b: null, c: { d: [true] } },
  ]);
  expect(table).toEqual({
    name: "",
    columns: ["a", "b", "c"],
    rows: [
      [cell("1", true), cell("x"), cell("")],
      [cell(""), cell(""), cell('{"d":[true]}')],
    ],
    leftRows: 0,
    leftColumns: 0,
  });
});

test("lists in an object are tables by name, unless something else is in it", () => {
  expect(tablesOf({ result: [{ a: 1 }], more: [{ b: 2 }] }).map((one) => one.name)).toEqual([
    "result",
    "more",
  ]);
  expect(tablesOf({ result: [{ a: 1 }], total: 7 })).toEqual([]);
});

test.each([[[]], [[1, 2]], [[{ a: 1 }, 2]], [[{}]], [{}], ["text"], [null]])("%j is no table", (value) =>
  expect(tablesOf(value)).toEqual([]),
);

test("a table is bounded, and says what it leaves out", () => {
  const wide = Object.fromEntries(Array.from({ length: 20 }, (_one, place) => [`c${place}`, place]));
  const [table] = tablesOf(Array.from({ length: 500 }, () => wide));
  expect(table).toMatchObject({ leftRows: 500 - MOST_ROWS, leftColumns: 20 - MOST_COLUMNS });
});

test("a member called like the prototype is a column like every other", () => {
  expect(tablesOf(JSON.parse('[{"__proto__": "x"}]'))[0]?.rows).toEqual([[cell("x")]]);
});

test("text is JSON only if it is an object or a list", () => {
  expect(jsonIn(' {"a": 1}')).toEqual({ a: 1 });
  for (const text of ["12", '"a"', "{", "[docs](x)", ""]) expect(jsonIn(text)).toBeUndefined();
});

test("texts that repeat the structured content are known by their values", () => {
  expect(repeats(['{ "a": 1 }'], { a: 1 })).toBe(true);
  expect(repeats(['[{"a": 1}]'], { result: [{ a: 1 }] })).toBe(true);
  expect(repeats(['{"a": 1}', "two", "3"], { result: [{ a: 1 }, "two", 3] })).toBe(true);
  expect(repeats(["hello"], { result: "hello" })).toBe(true);
  expect(repeats(["hello"], { a: "hello", b: 1 })).toBe(false);
  expect(repeats(['{"a": 1}', "more"], { result: [{ a: 1 }] })).toBe(false);
  expect(repeats([], { a: 1 })).toBe(false);
  expect(repeats(["hello"], undefined)).toBe(false);
});
