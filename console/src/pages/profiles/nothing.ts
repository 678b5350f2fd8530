/** Why a profile selects nothing, and where to change that. */
import type { components } from "@/api/schema";
import type { WhyNothing } from "@/parts/offered";

type Seen = Pick<components["schemas"]["ProfileOverview"], "profile_id" | "tools" | "unlisted">;

/** Null: it selects something. */
export function whyNothing({ profile_id, tools, unlisted }: Seen): WhyNothing | null {
  if (tools > 0) return null;
  const [first, ...others] = unlisted;
  if (first !== undefined) {
    const more = others.length === 0 ? "has" : `and ${others.length} more have`;
    const reason = `\`${first}\` ${more} not listed tools.`;
    return { reason, todo: { title: `Open ${first}`, path: `/servers/${encodeURIComponent(first)}` } };
  }
  const path = `/profiles/${encodeURIComponent(profile_id)}/edit`;
  return { reason: "No registered tool matches its lists.", todo: { title: "Change its lists", path } };
}
