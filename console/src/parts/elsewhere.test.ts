import { expect, test } from "vitest";
import { pageOf } from "./elsewhere";

test("pages of the web are gone to", () => {
  expect(pageOf("https://login.example.com/authorize?a=b")).toBe("https://login.example.com/authorize?a=b");
  expect(pageOf("http://127.0.0.1:9/authorize")).toBe("http://127.0.0.1:9/authorize");
});

test("what would run, or lead nowhere, is not", () => {
  for (const url of [
    "javascript:alert(1)",
    " JavaScript:alert(1)",
    "data:text/html,x",
    "file:///etc",
    "x",
    "",
  ])
    expect(() => pageOf(url)).toThrow("not an http or https URL");
});
