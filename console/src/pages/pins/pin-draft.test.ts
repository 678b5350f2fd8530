import { expect, test } from "vitest";
import {
  approve,
  type Difference,
  firstPin,
  isApprovable,
  markOf,
  type Pin,
  type Preview,
  rowsOf,
} from "./pin-draft";

const PIN: Pin = {
  server_id: "rug",
  tools: { read: "a", gone: "g", old: "o", same: "s" },
  changed: { read: "b" },
  revision: 3,
  waiting: ["read"],
};

function difference(tool: string, more: Partial<Difference>): Difference {
  const plain = { approved: null, found: null, listed: null, was: null, is_whole: false, diff: [] };
  return { tool, state: "changed", ...plain, ...more };
}

const READ = difference("read", { approved: "a", found: "b", listed: "b" });
const FRESH = difference("fresh", { state: "new", found: "f", listed: "f" });
const NEWER = difference("newer", { state: "renamed", was: "old", found: "n", listed: "n" });
const GONE = difference("gone", { state: "missing", approved: "g" });
const AWAY = difference("away", { approved: "x", found: "y" });

test("one approval leaves all else as it is", () => {
  expect(approve(PIN, [READ])).toEqual({
    server_id: "rug",
    tools: { read: "b", gone: "g", old: "o", same: "s" },
    changed: { read: null },
  });
});

test("all of them are approved as they were shown: new, renamed and missing ones too", () => {
  expect(approve(PIN, [READ, FRESH, NEWER, GONE]).tools).toEqual({
    read: "b",
    same: "s",
    fresh: "f",
    newer: "n",
  });
});

test("what the server does not list now cannot be approved", () => {
  expect([READ, GONE, AWAY].map(isApprovable)).toEqual([true, true, false]);
  expect(approve(PIN, [AWAY]).tools).toEqual(PIN.tools);
});

test("a definition that changed once more is another one", () => {
  expect(markOf(READ)).not.toBe(markOf({ ...READ, listed: "c" }));
});

test("a first pin approves what is offered or quarantined, and no definition that was refused", () => {
  const tool = (
    name: string,
    digest: string | null,
    allowed: boolean,
    reason: Preview["reason"] = null,
  ): Preview => ({
    tool: name,
    digest,
    effects: [],
    allowed,
    reason,
    name,
    chat_name: name,
    description: "",
    tokens: 1,
    layer: "platform",
    rule: "",
  });
  const previews = [
    tool("offered", "1", true),
    tool("held", "2", false, "quarantined"),
    tool("broken", null, false, "quarantined"),
    tool("denied", "3", false, "not_requested"),
  ];
  expect(firstPin("git", previews)).toEqual({ server_id: "git", tools: { offered: "1", held: "2" } });
});

test("every server has a row, and so has a pin without a server", () => {
  expect(rowsOf(["b", "a"], [PIN]).map((one) => [one.serverId, one.pin?.revision])).toEqual([
    ["a", undefined],
    ["b", undefined],
    ["rug", 3],
  ]);
});
