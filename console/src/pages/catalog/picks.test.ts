import { expect, test } from "vitest";
import {
  addressOf,
  encodePicks,
  followingQuery,
  frozenNames,
  inParts,
  isPicked,
  MOST_PICKS,
  namesIn,
  type Pick,
  parsePicks,
  pickedOf,
  picksIn,
  policyOf,
  savedOf,
  tokensOf,
  toolsOf,
  withoutOneOf,
  withoutPicked,
  withPackage,
  withPicked,
  withPrices,
} from "./picks";

const of = (tokens: number, tools = 1): Pick => ({ tokens, tools });

test("tools are picked once each, and put back", () => {
  const picks = withPicked(new Map(), [
    ["a.x", of(10)],
    ["b.y", of(5)],
    ["a.x", of(10)],
  ]);
  expect([...picks.keys()]).toEqual(["a.x", "b.y"]);
  expect(tokensOf(picks)).toBe(15);
  expect([...withoutPicked(picks, ["a.x"]).keys()]).toEqual(["b.y"]);
});

test("a whole package takes the place of its tools, and gives it back but for one", () => {
  const some = withPicked(new Map(), [
    ["a.x", of(10)],
    ["b.y", of(5)],
  ]);
  const whole = withPackage(some, "a", of(30, 2));
  const single = withoutOneOf(whole, "a", "a.x", [
    ["a.x", of(10)],
    ["a.z", of(20)],
  ]);
  expect([pickedOf(some, "a"), pickedOf(whole, "a"), pickedOf(whole, "c")]).toEqual([
    "some",
    "whole",
    "none",
  ]);
  expect([isPicked(whole, "a.z"), isPicked(some, "a.z")]).toEqual([true, false]);
  expect([tokensOf(whole), toolsOf(whole)]).toEqual([35, 3]);
  expect([...single.keys()].sort()).toEqual(["a.z", "b.y"]);
});

test("whole packages make a list of servers, and with single tools a list of patterns", () => {
  const packages = picksIn("a,b", null);
  const mixed = picksIn("a", "b.y,a.x");
  const prices = new Map([
    ["a.z", 20],
    ["a.x", 10],
    ["b.y", 5],
  ]);
  expect(followingQuery(packages)).toEqual({ servers: "a,b" });
  expect(followingQuery(mixed)).toEqual({ tools: "a.*,b.y" });
  expect(frozenNames(mixed, prices)).toEqual(["a.x", "a.z", "b.y"]);
  expect(withPrices(mixed, prices).get("a.*")).toEqual(of(30, 2));
  expect(withPrices(withPrices(mixed, prices), new Map(prices))).toEqual(withPrices(mixed, prices));
});

test("an address has what is picked, unless that is too long", () => {
  const picks = picksIn("a", "b.y");
  const many = picksIn(null, Array.from({ length: 500 }, (_one, index) => `server.tool${index}`).join(","));
  expect(addressOf(picks)).toEqual({ servers: "a", tools: "b.y" });
  expect(picksIn(null, "a.*,b.y")).toEqual(picks);
  expect(addressOf(many)).toEqual({ servers: "", tools: "" });
});

test("no more are picked than a skill can have", () => {
  const many = Array.from({ length: MOST_PICKS + 1 }, (_one, index) => [`a.t${index}`, of(1)] as const);
  expect(withPicked(new Map(), many).size).toBe(MOST_PICKS);
});

test.each([null, "", "{", "7", '[["a"], 7, ["a", "b"]]'])("%j holds no picks", (text) =>
  expect(parsePicks(text).size).toBe(0),
);

test("picks are kept as they were", () => {
  const picks = new Map([["a.*", of(3, 2)]]);
  expect(parsePicks(encodePicks(picks))).toEqual(picks);
  expect(parsePicks('[["a.x",3]]')).toEqual(new Map([["a.x", of(3)]]));
});

test("an address names each tool once", () => expect(namesIn("a.x,,b.y,a.x")).toEqual(["a.x", "b.y"]));

test("a task has the picked tools by name, and whole packages with what they get later", () => {
  const one = { tokens: 1, tools: 1 };
  expect(
    policyOf(
      new Map([
        ["memory.*", one],
        ["git.a.b", one],
        ["git.log", one],
      ]),
    ),
  ).toEqual({ servers: ["git", "memory"], allow: ["git/a.b", "git/log", "memory/*"] });
  expect(policyOf(new Map([["memory.*", one]]))).toEqual({ servers: ["memory"], allow: null });
});

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
