import { expect, test } from "vitest";
import { parseView, queryOf, viewParams } from "./selection";

test.each([
  "",
  "task=review&why=git.git_push",
  "task=a&key=b&servers=git%2Cshop&tools=git.*&profile=p&mode=find",
  "servers=&kind=prompt&show=out&layer=task&reason=denied_by_task&q=x",
])("an address is the same after a round: %s", (text) => {
  expect(viewParams(parseView(new URLSearchParams(text))).toString()).toBe(
    new URLSearchParams(text).toString(),
  );
});

test("what is not understood is left out, and an empty list stays one", () => {
  const view = parseView(
    new URLSearchParams("mode=x&kind=y&show=z&layer=q&reason=w&servers=&tools=a,,b&task="),
  );
  expect(view.selection).toEqual({
    task: null,
    key: null,
    servers: [],
    tools: ["a", "b"],
    profile: null,
    mode: null,
  });
  expect(queryOf(view.selection)).toEqual({ servers: "", tools: "a,b" });
  expect(view.kind).toBe("tool");
  expect(view.filter).toEqual({ show: "all", layer: null, reason: null, text: "" });
});
