import { expect, test } from "vitest";
import { blindTasks, newTasks } from "./plan-words";

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
