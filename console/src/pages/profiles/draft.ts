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

/** Null: the common selection applies in this environment. */
export type Environments = Readonly<Record<Environment, Selection | null>>;

export type Rollout = Shapes["RolloutBody"];

export interface Draft {
  readonly profile_id: string;
  readonly version: number;
  /** The next version, while it is rolled out. The form leaves it as it is. */
  readonly rollout: Rollout | null;
  readonly common: Selection;
  readonly environments: Environments;
}

export const OPEN: Selection = { servers: null, tags: null, allow: null, deny: [] };
export const NEW: Profile = { profile_id: "", version: 1, deny: [], environments: {}, revision: 0 };

export function selectionOf(sent: Shapes["SelectionBody"]): Selection {
  return {
    servers: sent.servers ?? null,
    tags: sent.tags ?? null,
    allow: sent.allow ?? null,
    deny: sent.deny ?? [],
  };
}

/** What one version selects: of a profile, or of its rollout. */
export function versionOf(sent: Profile | Rollout): Pick<Draft, "common" | "environments"> {
  const own = (name: Environment) => {
    const selection = sent.environments[name];
    return selection === undefined ? null : selectionOf(selection);
  };
  return {
    common: selectionOf(sent),
    environments: { dev: own("dev"), staging: own("staging"), prod: own("prod") },
  };
}

export function draftOf(profile: Profile): Draft {
  const { profile_id, version, rollout } = profile;
  return { profile_id, version, rollout: rollout ?? null, ...versionOf(profile) };
}

export type Body = Shapes["SelectionBody"] & {
  environments: Record<string, Shapes["SelectionBody"]>;
  version: number;
  rollout?: Rollout;
};

function listed({ servers, tags, allow, deny }: Selection): Shapes["SelectionBody"] {
  return {
    deny: [...deny],
    ...(servers && { servers: [...servers] }),
    ...(tags && { tags: [...tags] }),
    ...(allow && { allow: [...allow] }),
  };
}

export function bodyOf({ common, environments, version, rollout }: Draft): Body {
  const own = ENVIRONMENTS.flatMap((name) => {
    const selection = environments[name];
    return selection === null ? [] : [[name, listed(selection)] as const];
  });
  return {
    ...listed(common),
    environments: Object.fromEntries(own),
    version,
    ...(rollout && { rollout }),
  };
}

/** The profile with its next version as the current one. */
export function promoted(rollout: Rollout): Body {
  const { version, share: _share, by: _by, ...selection } = rollout;
  return { ...selection, version: version ?? 1 };
}

/** The profile with the next version at another share; null: without it. */
export function atShare(profile: Profile, share: number | null): Body {
  const { rollout, ...draft } = draftOf(profile);
  return bodyOf({ ...draft, rollout: rollout && share !== null ? { ...rollout, share } : null });
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
export function holding(
  { common, environments }: Pick<Draft, "common" | "environments">,
  environment: string,
): Selection {
  const name = ENVIRONMENTS.find((one) => one === environment);
  return (name && environments[name]) ?? common;
}

/** The tasks that narrow by a profile. */
export function usersOf(id: string, tasks: readonly Shapes["TaskShown"][]): string[] {
  return tasks.filter((one) => one.config["mcp.profile"] === JSON.stringify(id)).map((one) => one.task_id);
}
