import { expect, test } from "vitest";
import { nearest, readRange } from "./time-range";

test("the range of the address wins over that of the tab, which wins over the usual one", () => {
  expect(readRange("7d", "1h", "24h")).toBe("7d");
  expect(readRange("nonsense", "1h", "24h")).toBe("1h");
  expect(readRange(null, null, "24h")).toBe("24h");
});

test("a page without the chosen range shows the longest one up to it, or its shortest", () => {
  expect(nearest("90d", ["1h", "24h"])).toBe("24h");
  expect(nearest("1h", ["7d", "30d"])).toBe("7d");
});
