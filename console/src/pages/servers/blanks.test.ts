import { describe, expect, it } from "vitest";
import { type Answers, blanksOf, filled, isAnswered } from "./blanks";
import { reference } from "./paste";
import type { Body } from "./server-form";

const stdio = (args: string[], env: Record<string, string> = {}, command = "npx"): Body => ({
  transport: "stdio",
  stdio: { command, args, env, env_from: [] },
});
const seen = (body: Body) => blanksOf(body).map(({ label, was, isSecret }) => [label, was, isSecret]);

describe("blanksOf", () => {
  it("finds what a README leaves to the reader", () => {
    const env = {
      EMPTY: "",
      API_KEY: "YOUR_API_KEY",
      TOKEN: "<your token>",
      OTHER: "ghp_xxxxxxxx",
      HOST: "example.com",
      PLAIN: "your api key",
    };
    expect(seen(stdio([], env))).toEqual([
      ["EMPTY", "missing", false],
      ["API_KEY", "missing", true],
      ["TOKEN", "missing", true],
      ["OTHER", "missing", false],
      ["PLAIN", "missing", false],
    ]);
  });

  it("finds them in arguments, in URLs and in parts of headers", () => {
    expect(seen(stdio(["-y", "files", "/path/to/allowed", "--token", "abc", "--x=<id>"]))).toEqual([
      ["Argument 3: /path/to/allowed", "missing", false],
      ["token", "secret", true],
      ["Argument 6: id", "missing", false],
    ]);
    const http = { url: "https://{tenant}.example/mcp", headers: { Authorization: "Bearer YOUR_TOKEN" } };
    expect(seen({ transport: "streamable_http", http })).toEqual([
      ["Authorization: YOUR_TOKEN", "missing", true],
      ["URL: tenant", "missing", false],
    ]);
  });

  it("knows references, but not those with a default, and secrets that are written out", () => {
    const env = { A: reference("A"), B: `$${"{ENV:B:-x}"}`, GITHUB_TOKEN: "ghp_123" };
    expect(seen(stdio([], env))).toEqual([
      ["A", "reference", false],
      ["GITHUB_TOKEN", "secret", true],
    ]);
  });

  it("asks for what a container gets from the program that runs it", () => {
    const body = stdio(["run", "-i", "-e", "TOKEN", "-e", "SET=1", "image"], {}, "docker");
    expect(seen(body)).toEqual([["TOKEN", "missing", true]]);
    const answers: Answers = { "env TOKEN": { isFromGateway: true, value: "", variable: "GH" } };
    expect(filled(body, blanksOf(body), answers).stdio?.env).toEqual({ TOKEN: reference("GH") });
  });
});

describe("filled", () => {
  it("puts values and references into their places, and leaves the rest", () => {
    const body: Body = {
      transport: "streamable_http",
      http: { url: "https://<a>.x/<b>", headers: { Authorization: "Bearer <token>", X: "y" } },
    };
    const blanks = blanksOf(body);
    const answers: Answers = Object.fromEntries(
      blanks.map((one) => [one.key, { isFromGateway: one.isSecret, value: "v", variable: "T" }]),
    );
    expect(blanks.some((one) => isAnswered(one, {}))).toBe(false);
    expect(blanks.every((one) => isAnswered(one, answers))).toBe(true);
    expect(filled(body, blanks, answers).http).toEqual({
      url: "https://v.x/v",
      headers: { Authorization: `Bearer ${reference("T")}`, X: "y" },
    });
  });

  it("changes nothing without answers where nothing is missing", () => {
    const body = stdio(["x"], { A: reference("A"), API_KEY: "literal" });
    expect(filled(body, blanksOf(body), {})).toEqual(body);
  });
});
