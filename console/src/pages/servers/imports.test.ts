import { expect, test } from "vitest";
import { type ImportResponse, toFound, wanted } from "./imports";

const ANSWER: ImportResponse = {
  revision: 3,
  servers: ["new", "old", "same", "bad", "unwanted"],
  changes: [
    { operation: "added", kind: "server", id: "new", fields: [] },
    { operation: "changed", kind: "server", id: "old", fields: [] },
  ],
  skipped: [
    { name: "bad", reason: "not among the programs" },
    { name: "x/bundle", reason: "cannot be run" },
  ],
  warnings: [],
  plan: "p",
  effect: null,
  records: [],
};

test("each definition has one outcome, those that could not be read included", () => {
  const found = toFound(ANSWER, new Set(["unwanted"]));
  expect(found.map((one) => [one.name, one.outcome, one.canBePicked])).toEqual([
    ["new", "added", true],
    ["old", "changed", true],
    ["same", "same", true],
    ["bad", "refused", false],
    ["unwanted", "skipped", true],
    ["x/bundle", "refused", false],
  ]);
});

test("without a choice all are wanted, also those that come with the next look", () => {
  expect(wanted(ANSWER, new Set())).toBeNull();
  expect(wanted(undefined, new Set(["a"]))).toBeNull();
  expect(wanted(ANSWER, new Set(["new", "bad"]))).toEqual(["old", "same", "unwanted"]);
});
