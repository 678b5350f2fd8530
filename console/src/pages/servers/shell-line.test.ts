import { expect, test } from "vitest";
import { quote, shellLine, shownValue, splitLine } from "./shell-line";

test.each([
  ["npx", "npx"],
  ["@scope/server@1.0", "@scope/server@1.0"],
  ["two words", "'two words'"],
  ["it's", "'it'\\''s'"],
  ["$(rm -rf /)", "'$(rm -rf /)'"],
  ["", "''"],
  ["a\nb", "'a\nb'"],
])("%j is one literal word of a shell", (word, quoted) => expect(quote(word)).toBe(quoted));

test("a launch is shown with its directory, its variables and its arguments", () => {
  const launch = {
    command: "npx",
    args: ["-y", "a b"],
    env: { LEVEL: "3" },
    env_from: ["HOME"],
    cwd: "/srv/x y",
  };
  expect(shellLine(launch)).toBe(`cd '/srv/x y' && LEVEL=3 HOME="$HOME" npx -y 'a b'`);
});

test("a secret is never in it, a reference to one is", () => {
  const reference = ["$", "{ENV:PW}"].join("");
  const launch = {
    command: "run",
    args: ["--token", "abc", "--api-key=def", "API_TOKEN=x=y", "--keep", "this", "--password", reference],
    env: { GITHUB_TOKEN: "ghp", OTHER_TOKEN: reference, AUTHOR: "Ada" },
    env_from: [],
    cwd: null,
  };
  expect(shellLine(launch)).toBe(
    `GITHUB_TOKEN='***' OTHER_TOKEN='${reference}' AUTHOR=Ada ` +
      `run --token '***' '--api-key=***' 'API_TOKEN=***' --keep this --password '${reference}'`,
  );
});

test("a header is shown by its name", () => {
  expect(shownValue("Authorization", "Bearer abc")).toBe("***");
  expect(shownValue("X-Team", "blue")).toBe("blue");
});

test.each([
  ["npx -y server /a", ["npx", "-y", "server", "/a"]],
  [`run 'a b' "c \\" d" e\\ f`, ["run", "a b", 'c " d', "e f"]],
  [`x''y ""`, ["xy", ""]],
  ["  ", []],
])("%j is split as a shell would", (line, words) => expect(splitLine(line)).toEqual(words));

test("an open quote is no line yet", () => expect(splitLine("run 'a")).toBeNull());
