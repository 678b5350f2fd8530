/** Texts of upstreams and callers are shown as they are: nothing in them may hide, or move the text around them. */

export interface Piece {
  readonly text: string;
  /** Shown by its number, since one would not see it, or would see something else by it. */
  readonly isEscaped: boolean;
}

/** Controls (but newline and tab), everything of the categories format, private, surrogate and unassigned, the separators
 *  that are no plain space, and fillers and selectors that Unicode counts as letters and marks. */
const HIDDEN =
  // biome-ignore lint/suspicious/noMisleadingCharacterClass: each of them by itself is meant
  /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Cn}\p{Zl}\p{Zp}\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000\u115f\u1160\u3164\uffa0\u034f\u17b4\u17b5\u180b-\u180f\u2800\ufe00-\ufe0f\u{e0100}-\u{e01ef}]/gu;

/** More than this many characters of one text are not looked at; a page stays usable whatever is sent. */
const MOST = 20_000;

function numberOf(char: string): string {
  const code = char.codePointAt(0) ?? 0;
  if (code === 0x1b) return "ESC";
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** `text` in pieces, those that hide as their numbers. */
export function visible(text: string): Piece[] {
  const looked = text.length > MOST ? text.slice(0, MOST) : text;
  const pieces: Piece[] = [];
  let begin = 0;
  for (const match of looked.matchAll(HIDDEN)) {
    if (match[0] === "\n" || match[0] === "\t") continue;
    if (match.index > begin) pieces.push({ text: looked.slice(begin, match.index), isEscaped: false });
    pieces.push({ text: numberOf(match[0]), isEscaped: true });
    begin = match.index + match[0].length;
  }
  if (begin < looked.length) pieces.push({ text: looked.slice(begin), isEscaped: false });
  if (text.length > MOST) pieces.push({ text: `… ${text.length - MOST} more`, isEscaped: true });
  return pieces;
}

/** The same as plain text, for titles, labels and options, which hold no elements. */
export function visibleText(text: string): string {
  return visible(text)
    .map((one) => (one.isEscaped ? `[${one.text}]` : one.text))
    .join("");
}
