import { describe, expect, test } from "vitest";
import { candidates, isAllowed, isDefault, type Pick, type Picks, pick } from "./picks";

const IDS = ["a", "b", "c", "d"];

/** The same sequence for the same seed. */
function random(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

function anyPick(next: (below: number) => number): Pick {
  const isOn = next(2) === 1;
  const id = IDS[next(IDS.length)] as string;
  const all: Pick[] = [
    { do: "default", id, isOn },
    { do: "allowed", id, isOn },
    { do: "name-default", isOn },
    { do: "name-allowed", isOn },
  ];
  // Ticks are more likely than switches, so that lists grow.
  return all[Math.min(next(8) >> 1, 3)] as Pick;
}

function anyPicks(next: (below: number) => number): Picks {
  const allowed = IDS.filter(() => next(2) === 1);
  return [
    { default: null, allowed: null },
    { default: null, allowed },
    { default: allowed, allowed: null },
    { default: allowed.filter(() => next(2) === 1), allowed },
  ][next(4)] as Picks;
}

describe("whatever is ticked in whatever order", () => {
  const runs = Array.from({ length: 300 }, (_, seed) => {
    const next = random(seed + 1);
    const steps: { before: Picks; action: Pick; after: Picks }[] = [];
    let picks = anyPicks(next);
    for (let i = 0; i < 25; i++) {
      const action = anyPick(next);
      const after = pick(picks, action);
      steps.push({ before: picks, action, after });
      picks = after;
    }
    return steps;
  }).flat();

  test("the default stays within what is allowed", () => {
    for (const { after } of runs) {
      for (const id of IDS) expect(!isDefault(after, id) || isAllowed(after, id)).toBe(true);
      if (after.allowed !== null)
        expect(after.allowed).toEqual(expect.arrayContaining([...(after.default ?? [])]));
    }
  });

  test("a tick is seen at once", () => {
    for (const { action, after } of runs) {
      if (action.do === "default") expect(isDefault(after, action.id)).toBe(action.isOn);
      if (action.do === "allowed") expect(isAllowed(after, action.id)).toBe(action.isOn);
    }
  });

  test("ticking default ticks allowed, and unticking allowed unticks default", () => {
    for (const { action, after } of runs) {
      if (action.do === "default" && action.isOn) expect(isAllowed(after, action.id)).toBe(true);
      if (action.do === "allowed" && !action.isOn) expect(isDefault(after, action.id)).toBe(false);
    }
  });

  test("a tick changes no other server", () => {
    for (const { before, action, after } of runs) {
      if (!("id" in action)) continue;
      for (const id of IDS.filter((one) => one !== action.id)) {
        expect([isDefault(after, id), isAllowed(after, id)]).toEqual([
          isDefault(before, id),
          isAllowed(before, id),
        ]);
      }
    }
  });

  test("no server is listed twice, and the same tick again changes nothing", () => {
    for (const { action, after } of runs) {
      for (const list of [after.default, after.allowed])
        expect(new Set(list ?? []).size).toBe(list?.length ?? 0);
      expect(pick(after, action)).toEqual(after);
    }
  });
});

test("allowing one more names those that are allowed", () => {
  const picks = pick({ default: ["a"], allowed: null }, { do: "allowed", id: "b", isOn: true });
  expect(picks).toEqual({ default: ["a"], allowed: ["a", "b"] });
});

test("a server that is picked and not registered can still be unticked", () => {
  expect(candidates({ default: ["gone"], allowed: null }, ["b", "a"])).toEqual(["a", "b", "gone"]);
});
