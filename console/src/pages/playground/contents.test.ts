import { expect, test } from "vitest";
import { contentsOf, MOST_CONTENTS, MOST_IMAGE_CHARS } from "./contents";

const one = (content: unknown) => contentsOf({ content: [content] }).shown[0];

test("texts, links and resources are shown as text", () => {
  expect(one({ type: "text", text: "<b>" })).toEqual({ kind: "text", text: "<b>" });
  expect(one({ type: "resource_link", uri: "javascript:alert(1)", name: "n" })).toEqual({
    kind: "link",
    uri: "javascript:alert(1)",
    name: "n",
    description: "",
  });
  expect(one({ type: "resource", resource: { uri: "a:b", text: "t" } })).toEqual({
    kind: "resource",
    uri: "a:b",
    text: "t",
  });
});

test("an image that holds pixels is shown from what was answered", () => {
  expect(one({ type: "image", mimeType: "image/png", data: "iVBORw0KGgo=" })).toEqual({
    kind: "image",
    url: "data:image/png;base64,iVBORw0KGgo=",
  });
});

test.each([
  ["image/svg+xml", "PHN2Zz4="],
  ["text/html", "PGI+"],
  ["image/png;x", "aaaa"],
  ["image/png", "https://example.org/a.png"],
  ["image/png", ""],
  ["image/png", "a".repeat(MOST_IMAGE_CHARS + 1)],
])("XSS-4: an image of the type %s is not shown for everything it may hold", (mimeType, data) =>
  expect(one({ type: "image", mimeType, data })?.kind).toBe("unshown"),
);

test.each([null, 7, "text", {}, { type: "video" }, { type: "resource" }, { type: "text", text: 7 }])(
  "%j breaks nothing",
  (content) => expect(["unshown", "text"]).toContain(one(content)?.kind),
);

test("very many contents are not all shown", () => {
  const content = Array.from({ length: MOST_CONTENTS + 5 }, () => ({ type: "text", text: "" }));
  expect(contentsOf({ content })).toMatchObject({ left: 5 });
  expect(contentsOf({ content: "none" })).toEqual({ shown: [], left: 0 });
});
