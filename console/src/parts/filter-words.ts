/** How the text of a filter is looked for in a row. */

/** Whether all words of `text` are in `said`. */
export function hasWords(text: string, ...said: readonly string[]): boolean {
  const all = said.join("\n").toLowerCase();
  return text
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}
