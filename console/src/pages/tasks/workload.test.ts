import { expect, test } from "vitest";
import { envOf, linesOf } from "./workload";

test("variables are lines, and lines are variables", () => {
  const env = { A: "1", B: "x=y", C: "" };
  expect(linesOf(env)).toEqual(["A=1", "B=x=y", "C="]);
  expect(envOf(linesOf(env))).toEqual(env);
  expect(envOf(["A", " B =2", "B=3"])).toEqual({ A: "", B: "3" });
});
