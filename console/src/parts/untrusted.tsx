/** Text from outside. It cannot break out of its element, and hidden characters are shown. */
import { visible } from "./visible";

export function Untrusted({ text, mono = false }: { readonly text: string; readonly mono?: boolean }) {
  return (
    <span className={mono ? "untrusted mono" : "untrusted"}>
      {visible(text).map((piece, place) =>
        piece.isEscaped ? (
          // biome-ignore lint/suspicious/noArrayIndexKey: the pieces of one text never move
          <span key={place} className="escaped">
            {piece.text}
          </span>
        ) : (
          piece.text
        ),
      )}
    </span>
  );
}
