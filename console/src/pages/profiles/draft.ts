/** A profile as the form has it, and the record it becomes. */
import type { Shapes } from "@/api/client";
import { mergedFields } from "@/parts/use-draft";

export type Profile = Shapes["ProfileShown"];
type Names = readonly string[] | null;

export const ENVIRONMENTS = ["dev", "staging", "prod"] as const;
export type Environment = (typeof ENVIRONMENTS)[number];

/** A list that is null does not restrict. */
export interface Selection {
  readonly servers: Names;
  readonly tags: Names;
  readonly allow: Names;
  readonly deny: readonly string[];
}

/** Null: in this environment the common selection holds. */
export type Environments = Readonly<Record<Environment, Selection | null>>;

export interface Draft {
  readonly profile_id: string;
  readonly common: Selection;
  readonly environments: Environments;
}

export const OPEN: Selection = { servers: null, tags: null, allow: null, deny: [] };
export const NEW: Profile = { profile_id: "", deny: [], environments: {}, revision: 0 };

export function selectionOf(sent: Shapes["SelectionBody"]): Selection {
  return {
    servers: sent.servers ?? null,
    tags: sent.tags ?? null,
    allow: sent.allow ?? null,
    deny: sent.deny ?? [],
  };
}

export function draftOf(profile: Profile): Draft {
  const own = (name: Environment) => {
    const sent = profile.environments[name];
    return sent === undefined ? null : selectionOf(sent);
  };
  return {
    profile_id: profile.profile_id,
    common: selectionOf(profile),
    environments: { dev: own("dev"), staging: own("staging"), prod: own("prod") },
  };
}

export type Body = Shapes["SelectionBody"] & { environments: Record<string, Shapes["SelectionBody"]> };

function listed({ servers, tags, allow, deny }: Selection): Shapes["SelectionBody"] {
  return {
    deny: [...deny],
    ...(servers && { servers: [...servers] }),
    ...(tags && { tags: [...tags] }),
    ...(allow && { allow: [...allow] }),
  };
}

export function bodyOf({ common, environments }: Draft): Body {
  const own = ENVIRONMENTS.flatMap((name) => {
    const selection = environments[name];
    return selection === null ? [] : [[name, listed(selection)] as const];
  });
  return { ...listed(common), environments: Object.fromEntries(own) };
}

/** `draft`, made from `old`, on top of `fresh`. Each environment is looked at by itself. */
export function rebased(draft: Draft, old: Profile, fresh: Profile): Draft {
  const [before, now] = [draftOf(old), draftOf(fresh)];
  return {
    ...mergedFields(draft, before, now),
    environments: mergedFields(draft.environments, before.environments, now.environments),
  };
}

/** The selection that holds in an environment. */
export function holding({ common, environments }: Draft, environment: string): Selection {
  const name = ENVIRONMENTS.find((one) => one === environment);
  return (name && environments[name]) ?? common;
}

/** The tasks that narrow by a profile. */
export function usersOf(id: string, tasks: readonly Shapes["TaskShown"][]): string[] {
  return tasks.filter((one) => one.config["mcp.profile"] === JSON.stringify(id)).map((one) => one.task_id);
}
