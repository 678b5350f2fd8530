import { expect, test } from "vitest";
import { hex, partsOf } from "./parts";

test("parts cover a file without gap or overlap", () => {
  expect(partsOf(10, 4)).toEqual([
    { begin: 0, end: 4 },
    { begin: 4, end: 8 },
    { begin: 8, end: 10 },
  ]);
  expect(partsOf(8, 4)).toHaveLength(2);
  expect(partsOf(0, 4)).toEqual([]);
});

test("a digest is written as the gateway writes it", () => {
  expect(hex(new Uint8Array([0, 10, 255]))).toBe("000aff");
});
