import { expect, test } from "vitest";
import { bodyOf, draftOf, NEW, rebased, type Upstream } from "./draft";

const AZURE: Upstream = {
  ...NEW,
  upstream_id: "azure",
  base_url: "https://example.openai.azure.com/openai/v1",
  models: ["gpt-*"],
  headers: { "api-key": "***" },
  mode: "passthrough",
  revision: 7,
};

test("a record that is not touched is sent back as it was, its secrets hidden", () => {
  const { revision: _, ...same } = AZURE;
  expect(bodyOf(draftOf(AZURE))).toEqual({ ...same, auth_ref: null });
});

test("a header without a name is not sent, and spaces around names are not meant", () => {
  const draft = {
    ...draftOf(NEW),
    headers: [
      { name: " x-team ", value: "a" },
      { name: "", value: "b" },
    ],
    auth_ref: " ",
  };
  expect([bodyOf(draft).headers, bodyOf(draft).auth_ref]).toEqual([{ "x-team": "a" }, null]);
});

test("the other version is loaded, except for edited fields", () => {
  const typed = { ...draftOf(AZURE), max_concurrency: 2 };
  const found = rebased(typed, AZURE, { ...AZURE, enabled: false, max_concurrency: 9, revision: 8 });
  expect([found.enabled, found.max_concurrency]).toEqual([false, 2]);
});
