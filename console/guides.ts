/** Puts the guides of `docs/` into the console: each Markdown file becomes a small module of plain data, which the
 *  console renders without ever handling HTML. */
import { readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { marked, type Token, type Tokens } from "marked";
import type { Plugin } from "vite";
import type { GuideNode } from "./src/pages/guides/guide-node.ts";

const DOCS = join(import.meta.dirname, "..", "docs");
const ENTITIES: Readonly<Record<string, string>> = {
  "&lt;": "<",
  "&gt;": ">",
  "&quot;": '"',
  "&#39;": "'",
  "&amp;": "&",
};

function plain(text: string): string {
  return text.replace(/&(?:lt|gt|quot|#39|amp);/g, (one) => ENTITIES[one] ?? one);
}

/** The id of a heading, as the documentation site makes it. */
export function slug(text: string): string {
  return text
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s-]/gu, "")
    .trim()
    .replace(/\s+/g, "-");
}

/** Where a link leads: another guide, another site, or nowhere for files that the console does not have. */
function target(href: string, file: string): string {
  if (/^https?:/.test(href)) return href;
  if (href.startsWith("#")) return href;
  const [path = "", heading] = href.split("#");
  const guide = relative(DOCS, join(dirname(file), path));
  if (guide.startsWith("..") || !guide.endsWith(".md") || guide.startsWith("adr/")) return "";
  return `/guides/${guide.slice(0, -3)}${heading ? `#${heading}` : ""}`;
}

function inline(tokens: readonly Token[] | undefined, file: string): GuideNode[] {
  return (tokens ?? []).flatMap((token): GuideNode[] => {
    switch (token.type) {
      case "codespan":
        return [["code", "", [plain(token.text)]]];
      case "strong":
      case "em":
        return [[token.type, "", inline(token.tokens, file)]];
      case "link": {
        const to = target(token.href, file);
        const shown = inline(token.tokens, file);
        return to === "" ? shown : [["a", to, shown]];
      }
      case "image":
        return [];
      case "br":
        return [["br", "", []]];
      default:
        return token.tokens ? inline(token.tokens, file) : [plain(token.text ?? token.raw)];
    }
  });
}

function cells(row: readonly Tokens.TableCell[], tag: string, file: string): GuideNode {
  return ["tr", "", row.map((cell): GuideNode => [tag, "", inline(cell.tokens, file)])];
}

function block(token: Token, file: string): GuideNode[] {
  switch (token.type) {
    case "heading":
      return [[`h${token.depth}`, slug(plain(token.text)), inline(token.tokens, file)]];
    case "paragraph": {
      const found = inline(token.tokens, file);
      // A paragraph of pictures alone is gone with them, and so are the lists of more pictures.
      return found.every((one) => typeof one === "string" && one.trim() === "") ? [] : [["p", "", found]];
    }
    case "code":
      return [["pre", token.lang ?? "", [token.text]]];
    case "list":
      return [
        [token.ordered ? "ol" : "ul", "", token.items.map((item: Tokens.ListItem) => listItem(item, file))],
      ];
    case "table":
      return [
        [
          "table",
          "",
          [
            cells(token.header, "th", file),
            ...token.rows.map((row: Tokens.TableCell[]) => cells(row, "td", file)),
          ],
        ],
      ];
    case "blockquote":
      return [["blockquote", "", blocks(token.tokens ?? [], file)]];
    case "text":
      return inline(token.tokens ?? [token], file);
    default:
      return [];
  }
}

function listItem(item: Tokens.ListItem, file: string): GuideNode {
  return ["li", "", blocks(item.tokens, file)];
}

function blocks(tokens: readonly Token[], file: string): GuideNode[] {
  return tokens.flatMap((token) => block(token, file));
}

/** The nodes of a Markdown text in `file`. */
export function parseGuide(text: string, file: string): GuideNode[] {
  return blocks(marked.lexer(text), file);
}

export function guides(): Plugin {
  return {
    name: "guides",
    enforce: "pre",
    load(id) {
      const [file = "", query] = id.split("?");
      if (query !== "guide") return null;
      this.addWatchFile(file);
      return `export default JSON.parse(${JSON.stringify(JSON.stringify(parseGuide(readFileSync(file, "utf8"), file)))});`;
    },
  };
}
