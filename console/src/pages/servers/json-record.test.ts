import { expect, test } from "vitest";
import { parseJson } from "./json-record";

test("a record is taken as it is written", () => {
  const body = { server_id: "a", transport: "stdio", stdio: { command: "x" } };
  expect(parseJson(JSON.stringify(body))).toEqual({ body, problems: [], isForm: true });
});

test.each([
  ["{", /^invalid JSON/],
  ["[]", /^a record must be an object/],
  ["null", /^a record must be an object/],
  ['{"transport": "stdio"}', /^server_id is missing/],
  ['{"server_id": "a", "transport": "pigeon"}', /^transport must be `stdio`/],
  ['{"server_id": "a", "transport": "stdio", "stdio": 7}', /^stdio must be an object/],
  ['{"server_id": "a", "transport": "stdio", "colour": 7}', /^colour is not a known field/],
])("no form shows %j", (text, problem) => {
  const parsed = parseJson(text);
  expect(parsed.problems.map((one) => one.problem)).toEqual([expect.stringMatching(problem)]);
  expect(parsed.isForm).toBe(false);
});
