import { expect, test } from "vitest";
import { visible, visibleText } from "./visible";

test("plain text of any script stays as it is", () => {
  const text = "Lists files — 列出文件 — ملفات\n\tsecond line 👍";
  expect(visible(text)).toEqual([{ text, isEscaped: false }]);
});

test.each([
  ["bidi override", "\u202e", "U+202E"],
  ["bidi isolate", "\u2066", "U+2066"],
  ["zero-width space", "\u200b", "U+200B"],
  ["zero-width joiner", "\u200d", "U+200D"],
  ["byte order mark", "\ufeff", "U+FEFF"],
  ["tag character", "\u{e0041}", "U+E0041"],
  ["escape", "\u001b", "ESC"],
  ["carriage return", "\r", "U+000D"],
  ["null", "\u0000", "U+0000"],
  ["line separator", "\u2028", "U+2028"],
  ["hangul filler", "\u3164", "U+3164"],
  ["variation selector", "\ufe0f", "U+FE0F"],
  ["no-break space", "\u00a0", "U+00A0"],
  ["lone surrogate", "\ud800", "U+D800"],
  ["private use", "\ue000", "U+E000"],
])("XSS-3: a %s is shown by its number", (_name, char, shown) => {
  expect(visible(`a${char}b`)).toEqual([
    { text: "a", isEscaped: false },
    { text: shown, isEscaped: true },
    { text: "b", isEscaped: false },
  ]);
  expect(visibleText(`a${char}b`)).toBe(`a[${shown}]b`);
});

test("a text that is too long says how much is left out", () => {
  const pieces = visible("x".repeat(20_005));
  expect(pieces[0]?.text).toHaveLength(20_000);
  expect(pieces[1]).toEqual({ text: "… 5 more", isEscaped: true });
});
