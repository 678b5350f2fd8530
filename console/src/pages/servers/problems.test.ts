import { expect, test } from "vitest";
import { ApiError } from "@/api/error";
import { localProblems, problemAt, problemsOf, unplaced } from "./problems";
import { BLANK, toForm } from "./server-form";

const FINE = { ...toForm(BLANK), server_id: "files", command: "npx" };

function fields(form: typeof FINE): string[] {
  return localProblems(form).map((one) => one.field);
}

test("a form with a name and a command is fine", () => expect(localProblems(FINE)).toEqual([]));

test("what has not been filled in is missing, not wrong", () => {
  expect(localProblems(toForm(BLANK)).map((one) => [one.field, one.isMissing])).toEqual([
    ["server_id", true],
    ["stdio.command", true],
  ]);
});

test.each(["Files", "a b", "-a", "a--b", "a".repeat(41), "ü"])("%j is no id", (id) => {
  expect(fields({ ...FINE, server_id: id })).toEqual(["server_id"]);
});

test.each(["", "0", 99, 300_001, 1.5, "x"])("%j is no time limit", (typed) => {
  expect(fields({ ...FINE, tool_timeout_ms: typed })).toEqual(["budgets.tool_timeout_ms"]);
});

test("a duplicate variable is a problem, because one of the two would be lost", () => {
  const env = [
    { key: "A", value: "1" },
    { key: "A", value: "2" },
    { key: "a", value: "3" },
  ];
  expect(fields({ ...FINE, env })).toEqual(["stdio.env[1]"]);
});

test("headers are the same in any case", () => {
  const headers = [
    { key: "X-A", value: "1" },
    { key: "x-a", value: "2" },
  ];
  const form = { ...FINE, transport: "streamable_http" as const, url: "https://x.example", headers };
  expect(fields(form)).toEqual(["http.headers[1]"]);
});

test("what the gateway says of each field is found there", () => {
  const problems = [
    { field: "stdio.args[2]", problem: "too long" },
    { field: "stdio.env.TOKEN", problem: "odd" },
    { field: "", problem: "transport `stdio` needs `stdio`" },
  ];
  const found = problemsOf(new ApiError(400, "invalid_record", "…", "", { problems })) ?? [];
  expect(problemAt(found, "stdio.args")).toBe("[2]: too long");
  expect(problemAt(found, "stdio.args[2]")).toBe("too long");
  expect(problemAt(found, "stdio.env")).toBe("TOKEN: odd");
  expect(problemAt(found, "stdio.en")).toBeUndefined();
  expect(unplaced(found)).toEqual([problems[2]]);
});

test("a field that a sentence names is found, too, and its hint with it", () => {
  const error = new ApiError(400, "invalid_record", "`stdio.command`: `sh` is not among the programs", "ask");
  expect(problemsOf(error)).toEqual([
    { field: "stdio.command", problem: "`sh` is not among the programs; ask" },
  ]);
});

test("another failure is no problem of the record", () => {
  expect(problemsOf(new ApiError(409, "conflict", "changed meanwhile", ""))).toBeNull();
});
