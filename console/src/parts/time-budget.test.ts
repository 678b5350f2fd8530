import { expect, test } from "vitest";
import { byFullness, timeBudgetsIn, type Use } from "./time-budget";

test("only budgets that are numbers are set", () => {
  expect(timeBudgetsIn({ calls_per_day: 9, calls_per_minute: null, tokens_per_day: "9", other: 1 })).toEqual({
    calls_per_day: 9,
  });
  expect([timeBudgetsIn(null), timeBudgetsIn([1])]).toEqual([{}, {}]);
});

test("what is nearest to its end comes first", () => {
  const uses = [
    { holder_id: "a", used: 1, limit: 10 },
    { holder_id: "b", used: 9, limit: 10 },
  ] as Use[];
  expect(byFullness(uses).map((one) => one.holder_id)).toEqual(["b", "a"]);
});
