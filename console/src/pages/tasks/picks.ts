/** The default servers of a task, and those that requests may name: the first are always a subset of the second. */

export interface Picks {
  /** Null: its profile or tags decide. Empty: every request must name its servers. */
  readonly default: readonly string[] | null;
  /** Null: the same as the default. */
  readonly allowed: readonly string[] | null;
}

export type Pick =
  | { readonly do: "default"; readonly id: string; readonly isOn: boolean }
  | { readonly do: "allowed"; readonly id: string; readonly isOn: boolean }
  /** Whether the task names the servers it starts with. */
  | { readonly do: "name-default"; readonly isOn: boolean }
  /** Whether the task names those that requests may ask for. */
  | { readonly do: "name-allowed"; readonly isOn: boolean };

function put(ids: readonly string[], id: string, isOn: boolean): readonly string[] {
  if (ids.includes(id) === isOn) return ids;
  return isOn ? [...ids, id].sort() : ids.filter((one) => one !== id);
}

/** The picks after one more tick. Ticking default ticks allowed; unticking allowed unticks default. */
export function pick(picks: Picks, action: Pick): Picks {
  const named = picks.default ?? [];
  switch (action.do) {
    case "default":
      return tickDefault(picks, action.id, action.isOn);
    case "allowed":
      return action.isOn
        ? { ...picks, allowed: put(picks.allowed ?? named, action.id, true) }
        : untickBoth(picks, action.id);
    case "name-default":
      return { ...picks, default: action.isOn ? named : null };
    case "name-allowed":
      return { ...picks, allowed: action.isOn ? (picks.allowed ?? named) : null };
  }
}

function tickDefault(picks: Picks, id: string, isOn: boolean): Picks {
  const isWithin = isOn && picks.allowed !== null;
  return {
    default: put(picks.default ?? [], id, isOn),
    allowed: isWithin ? put(picks.allowed, id, true) : picks.allowed,
  };
}

/** Lists that are left out stay so. */
function untickBoth(picks: Picks, id: string): Picks {
  return {
    default: picks.default && put(picks.default, id, false),
    allowed: picks.allowed && put(picks.allowed, id, false),
  };
}

export function isDefault(picks: Picks, id: string): boolean {
  return picks.default?.includes(id) ?? false;
}

export function isAllowed(picks: Picks, id: string): boolean {
  return (picks.allowed ?? picks.default)?.includes(id) ?? false;
}

/** All servers to choose from: registered ones, and picked ones that are not registered. */
export function candidates(picks: Picks, known: readonly string[]): string[] {
  return [...new Set([...known, ...(picks.default ?? []), ...(picks.allowed ?? [])])].sort();
}
