import { expect, test } from "vitest";
import { SECTIONS } from "./form-sections";
import { SHOWN_AT } from "./problems";
import { BLANK, type ServerForm, toForm } from "./server-form";

const summaries = (form: ServerForm) =>
  Object.fromEntries(SECTIONS.map((one) => [one.key, one.summary(form)]));

test("an empty form says what is missing, and what is usual", () => {
  expect(summaries(toForm(BLANK))).toEqual({
    general: "no ID yet",
    connection: "no command yet",
    tools: "none allowed",
    approvals: "never",
    redaction: "detected secrets only",
    limits: "defaults",
  });
});

test("a section says what is set in it, without secrets", () => {
  const env = [{ key: "API_KEY", value: "secret" }];
  const form = { ...toForm(BLANK), server_id: "git", tags: ["code"], command: "uvx", args: ["git"], env };
  const more = {
    allowed_tools: ["@read_only"],
    hide: ["a"],
    audited: "none",
    max_concurrency: 2,
    prewarm: true,
  } as const;
  expect(summaries({ ...form, ...more })).toMatchObject({
    general: "git, code",
    connection: "API_KEY='***' uvx git",
    tools: "@read_only",
    redaction: "1 name hidden, arguments not logged",
    limits: "concurrent calls, stays connected",
  });
});

test("every problem is shown in a section", () => {
  const paths = SECTIONS.flatMap((one) => one.paths);
  expect(SHOWN_AT.filter((path) => !paths.includes(path.split(".")[0] ?? ""))).toEqual([]);
});
