/** The content of a result that can be shown without another request. */
import { isObject, type Json } from "@/parts/schema-form-model";

export type Content =
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "image"; readonly url: string }
  | { readonly kind: "link"; readonly uri: string; readonly name: string; readonly description: string }
  | { readonly kind: "resource"; readonly uri: string; readonly text: string }
  /** Only said to be there. */
  | { readonly kind: "unshown"; readonly says: string };

export const MOST_CONTENTS = 100;
export const MOST_IMAGE_CHARS = 4_000_000;
const IMAGES: readonly string[] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const BASE64 = /^[A-Za-z0-9+/]+={0,2}$/;

/** The contents of a result, and how many were left out. */
export function contentsOf(result: Readonly<Record<string, unknown>>): { shown: Content[]; left: number } {
  const content = Array.isArray(result.content) ? (result.content as unknown[]) : [];
  const shown = content.slice(0, MOST_CONTENTS).map(contentOf);
  return { shown, left: content.length - shown.length };
}

function contentOf(item: unknown): Content {
  if (!isObject(item)) return { kind: "unshown", says: "invalid content" };
  switch (item.type) {
    case "text":
      return { kind: "text", text: textOf(item.text) };
    case "image":
      return imageOf(textOf(item.mimeType), textOf(item.data));
    case "audio":
      return { kind: "unshown", says: `audio (${textOf(item.mimeType)}): the console does not play audio` };
    case "resource_link":
      return {
        kind: "link",
        uri: textOf(item.uri),
        name: textOf(item.name),
        description: textOf(item.description),
      };
    case "resource":
      return resourceOf(item.resource);
    default:
      return { kind: "unshown", says: `content of type ${textOf(item.type)}` };
  }
}

/** An image of a kind that holds pixels and nothing else, and not too large. */
function imageOf(type: string, data: string): Content {
  if (!IMAGES.includes(type)) return { kind: "unshown", says: `image of unsupported type (${type})` };
  if (data.length > MOST_IMAGE_CHARS) return { kind: "unshown", says: "image too large to show" };
  if (!BASE64.test(data)) return { kind: "unshown", says: "invalid image data" };
  return { kind: "image", url: `data:${type};base64,${data}` };
}

function resourceOf(resource: Json | undefined): Content {
  if (!isObject(resource)) return { kind: "unshown", says: "resource without content" };
  const uri = textOf(resource.uri);
  if (typeof resource.text === "string") return { kind: "resource", uri, text: resource.text };
  return { kind: "unshown", says: `binary resource ${uri}` };
}

function textOf(value: Json | undefined): string {
  return typeof value === "string" ? value : "";
}
