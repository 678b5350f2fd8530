/** A text of the gateway as people read it: what it has in backticks is shown as code. */
import { Code } from "@mantine/core";
import { Untrusted } from "./untrusted";

export interface Span {
  readonly text: string;
  readonly isCode: boolean;
}

/** `text` in spans. A backtick without a partner stays what it is. */
export function spansOf(text: string): Span[] {
  const spans: Span[] = [];
  let begin = 0;
  for (const match of text.matchAll(/`([^`\n]+)`/g)) {
    if (match.index > begin) spans.push({ text: text.slice(begin, match.index), isCode: false });
    spans.push({ text: match[1] ?? "", isCode: true });
    begin = match.index + match[0].length;
  }
  if (begin < text.length) spans.push({ text: text.slice(begin), isCode: false });
  return spans;
}

/** `text` may be anyone's: it cannot become more than text. */
export function Prose({ text }: { readonly text: string }) {
  return spansOf(text).map((span, place) =>
    span.isCode ? (
      // biome-ignore lint/suspicious/noArrayIndexKey: the spans of one text never move
      <Code key={place}>
        <Untrusted text={span.text} />
      </Code>
    ) : (
      // biome-ignore lint/suspicious/noArrayIndexKey: the spans of one text never move
      <Untrusted key={place} text={span.text} />
    ),
  );
}
