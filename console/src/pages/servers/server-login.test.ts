import { expect, test } from "vitest";
import { returnUri } from "./server-login";

function pageAt(url: string) {
  return new URL(url);
}

test("a browser comes back to the console on its machine", () => {
  expect(returnUri(pageAt("http://127.0.0.1:8080/console/servers/a"))).toBe(
    "http://127.0.0.1:8080/console/servers/-/login",
  );
  expect(returnUri(pageAt("http://[::1]:8080/"))).toBe("http://[::1]:8080/console/servers/-/login");
});

test("a code is sent to no other machine, and not to a name that might be one", () => {
  const others = [
    "http://10.0.0.7:8080/",
    "http://127.evil.example/",
    "http://localhost/",
    "https://127.0.0.1/",
  ];
  expect(others.map((url) => returnUri(pageAt(url)))).toEqual([null, null, null, null]);
});
