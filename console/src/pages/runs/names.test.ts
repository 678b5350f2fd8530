import { expect, test } from "vitest";
import { moduleName } from "./names";

const MODULE = { size: 2_048, at_ms: 0, tasks: [] };

test("a module goes by its tasks, or else by its upload", () => {
  expect(moduleName({ ...MODULE, tasks: ["stock"] })).toBe("stock");
  expect(moduleName({ ...MODULE, tasks: ["stock", "tea"] })).toBe("stock and tea");
  expect(moduleName({ ...MODULE, tasks: ["a", "b", "c", "d"] })).toBe("a, b and 2 more");
  expect(moduleName(MODULE)).toMatch(/^2\.0 KiB uploaded /);
});
