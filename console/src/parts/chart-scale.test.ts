import { expect, test } from "vitest";
import { marks, short, timeMarks } from "./chart-scale";

test("an axis has few round marks, and room for the largest value", () => {
  expect(marks(0)).toEqual([0, 1]);
  expect(marks(1)).toEqual([0, 1]);
  expect(marks(43)).toEqual([0, 20, 40, 60]);
  expect(marks(1000)).toEqual([0, 500, 1000]);
  for (const most of [2, 7, 99, 101, 12_345]) {
    const found = marks(most);
    expect(found.at(-1)).toBeGreaterThanOrEqual(most);
    expect(found.length).toBeLessThanOrEqual(6);
  }
});

test("counts are short", () => {
  expect([short(7), short(1_200), short(3_000_000)]).toEqual(["7", "1.2K", "3M"]);
});

test("times below are whole hours of a day, and days of a month", () => {
  const since = Date.UTC(2026, 0, 1, 10, 30);
  const hours = timeMarks(since, since + 86_400_000, 8, true);
  expect(hours.map((one) => one.label)).toEqual([
    "12:00",
    "15:00",
    "18:00",
    "21:00",
    "00:00",
    "03:00",
    "06:00",
    "09:00",
  ]);
  const days = timeMarks(since, since + 30 * 86_400_000, 8, true);
  expect(days.every((one) => /^Jan \d+$/.test(one.label))).toBe(true);
  expect(days.every((one) => one.at >= 0 && one.at < 1)).toBe(true);
});
