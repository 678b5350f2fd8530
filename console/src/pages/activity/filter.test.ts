import { expect, test } from "vitest";
import { fromLocal, readAsked, toLocal, writeAsked } from "./filter";

test("what an address asks for comes back as the same address", () => {
  const text =
    "type=call&outcome=denied&principal=ci&task=t&server=s&tool=a.b&code=c&door=mcp&session=x&request=y&node=n&since=5&until=9";
  expect(writeAsked(readAsked(new URLSearchParams(text))).toString()).toBe(text);
});

test("what is not understood is left out", () => {
  const asked = readAsked(new URLSearchParams("type=everything&outcome=&since=soon&until=-1&principal=&x=1"));
  expect(writeAsked(asked).toString()).toBe("");
});

test("local times go to and fro, to the minute", () => {
  const ms = Date.UTC(2026, 10, 16, 6, 30);
  expect(fromLocal(toLocal(ms))).toBe(ms);
  expect(toLocal(undefined)).toBe("");
  expect(fromLocal("")).toBeUndefined();
});
