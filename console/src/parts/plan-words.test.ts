import { expect, test } from "vitest";
import { blindTasks, newServerWords, newTasks } from "./plan-words";

const created = { kind: "task", operation: "added", id: "new" } as const;
const seen = { task_id: "new", added: ["git/git_log"], refusal: null, problem: null };

test("a new task without tools is in no list of affected tasks, and is found all the same", () => {
  expect(blindTasks({ changes: [created], tasks: [] })).toEqual(["new"]);
  expect(blindTasks({ changes: [created], tasks: [{ ...seen, added: [] }] })).toEqual(["new"]);
  expect(blindTasks({ changes: [created], tasks: [seen] })).toEqual([]);
});

test("a new task with an error says so itself", () => {
  expect(blindTasks({ changes: [created], tasks: [{ ...seen, added: [], problem: "invalid" }] })).toEqual([]);
});

test("changed tasks and other records are not new", () => {
  const changes = [
    { kind: "task", operation: "changed", id: "old" },
    { kind: "server", operation: "added", id: "new" },
  ] as const;
  expect(newTasks({ changes, tasks: [] })).toEqual([]);
});

test("a new server says what it offers, and not that no task would notice", () => {
  const allowing = (after: string[]) => ({
    kind: "server" as const,
    operation: "added" as const,
    id: "git",
    fields: [{ field: "allowed_tools", before: null, after }],
  });
  const plan = (...after: string[]) => ({ changes: [allowing(after)], tasks: [], unlisted: ["git"] });
  expect(newServerWords(plan("a", "b"), 2)).toBe(
    "Offers 2 tools to callers without a task; no task changes.",
  );
  expect(newServerWords(plan("*"))).toBe(
    "Offers its allowed tools to callers without a task, once connected; no task changes.",
  );
  expect(newServerWords(plan())).toBe("Offers no tools: none is allowed; no task changes.");
  expect(newServerWords(plan(), 0)).toBe("Offers no tools: none is ticked; no task changes.");
  expect(newServerWords({ changes: [], tasks: [], unlisted: [] })).toBe("");
});
