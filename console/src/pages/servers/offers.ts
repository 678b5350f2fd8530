/** What a server lists, tools and the rest alike, as rows of one table. */
import type { Shapes } from "@/api/client";

export type Preview = Shapes["PreviewResponse"];

export interface Offer {
  readonly tool: string;
  /** At the MCP endpoint; empty if it keeps its own name there. */
  readonly name: string;
  readonly chatName: string;
  readonly description: string;
  readonly digest: string;
  readonly tokens: number | null;
  readonly effects: readonly string[];
  readonly allowed: boolean;
  readonly layer: Preview["tools"][number]["layer"];
  readonly reason: Preview["tools"][number]["reason"];
  readonly rule: string;
}

export function toOffers(preview: Preview): Offer[] {
  const tools = preview.tools.map(({ chat_name, digest, ...one }) => ({
    ...one,
    chatName: chat_name,
    digest: digest ?? "",
  }));
  const others = preview.others.map(({ tool, allowed, layer, reason, rule }) => ({
    tool: tool ?? "",
    name: "",
    chatName: "",
    description: "",
    digest: "",
    tokens: null,
    effects: [],
    allowed,
    layer,
    reason,
    rule,
  }));
  return [...tools, ...others];
}

export function filterOffers(offers: readonly Offer[], text: string, isOut: boolean): Offer[] {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return offers.filter((one) => {
    if (isOut && one.allowed) return false;
    const said = `${one.tool}\n${one.name}\n${one.chatName}\n${one.description}`.toLowerCase();
    return words.every((word) => said.includes(word));
  });
}
