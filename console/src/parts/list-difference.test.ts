import { expect, test } from "vitest";
import { listDifference } from "./list-difference";

const MANY = Array.from({ length: 50 }, (_, place) => `server-${place}`);

test("of long lists only what differs is said, also where they stand as text", () => {
  const after = [...MANY.slice(1), "new"];
  const found = { added: ["new"], removed: ["server-0"], same: 49 };
  expect(listDifference(MANY, after)).toEqual(found);
  expect(listDifference(JSON.stringify(MANY), JSON.stringify(after))).toEqual(found);
});

test.each([
  [["a"], ["b"]],
  [null, MANY],
  ["[not json", MANY],
  [MANY, [...MANY].reverse()],
  [MANY, [1, 2]],
])("%j and the like are shown whole", (before, after) => {
  expect(listDifference(before, after)).toBeNull();
});
