import { expect, test } from "vitest";
import {
  inParts,
  MOST_PICKS,
  namesIn,
  parsePicks,
  savedOf,
  tokensOf,
  withoutPicked,
  withPicked,
} from "./picks";

test("tools are picked once each, and put back", () => {
  const picks = withPicked(new Map(), [
    ["a.x", 10],
    ["b.y", 5],
    ["a.x", 10],
  ]);
  expect([...picks.keys()]).toEqual(["a.x", "b.y"]);
  expect(tokensOf(picks)).toBe(15);
  expect([...withoutPicked(picks, ["a.x"]).keys()]).toEqual(["b.y"]);
});

test("no more are picked than a skill can have", () => {
  const many = Array.from({ length: MOST_PICKS + 1 }, (_one, index) => [`a.t${index}`, 1] as const);
  expect(withPicked(new Map(), many).size).toBe(MOST_PICKS);
});

test.each([null, "", "{", "7", '[["a"], 7, ["a", "b"]]'])("%j holds no picks", (text) =>
  expect(parsePicks(text).size).toBe(0),
);

test("picks are kept as they were", () => expect(parsePicks('[["a.x",3]]')).toEqual(new Map([["a.x", 3]])));

test("an address names each tool once", () => expect(namesIn("a.x,,b.y,a.x")).toEqual(["a.x", "b.y"]));

test("a long list is asked for in parts that together are the list", () => {
  const names = Array.from({ length: 600 }, (_one, index) => `server.${"t".repeat(40)}${index}`);
  const parts = inParts(names);
  expect(parts.length).toBeGreaterThan(1);
  expect(parts.every((one) => one.length <= 8_000)).toBe(true);
  expect(parts.join(",").split(",")).toEqual(names);
  expect(inParts([])).toEqual([""]);
});

test("what is saved is said in percent", () => {
  expect(savedOf(539, 3177)).toBe(83);
  expect(savedOf(2_292, 1_146_000)).toBe(99);
  expect(savedOf(0, 0)).toBeNull();
});
