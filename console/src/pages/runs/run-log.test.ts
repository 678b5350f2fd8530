import { expect, test } from "vitest";
import type { StreamEvent } from "@/api/stream";
import { endOf, isOver, lastSeq, NOTHING_YET, noteEvent, type Run, tookMs } from "./run-log";

const RUN: Run = {
  invocation_id: "1",
  task_id: "t",
  principal: "local",
  state: "succeeded",
  revision: 1,
  created_ms: 1_000,
  started_ms: 2_000,
  ended_ms: 3_500,
  attempt: 1,
  retries: 0,
  is_cancel_asked: false,
  ended_by: "exit",
  exit_code: 0,
  ending: null,
};

function event(name: string, data: unknown): StreamEvent {
  return { event: name, id: "", data: JSON.stringify(data) };
}

function line(seq: number): StreamEvent {
  return event("line", { seq, at_ms: 1, stream: "stdout", level: "info", text: `line ${seq}` });
}

test("a stream that begins again after a gap repeats no line", () => {
  const told = [event("state", { state: "running" }), line(1), line(2), line(2), line(1), line(3)];
  const known = told.reduce(noteEvent, NOTHING_YET);

  expect([known.state, known.lines.map((one) => one.seq), lastSeq(known)]).toEqual(["running", [1, 2, 3], 3]);
});

test("the end brings all of the run, and a failure what was said of it", () => {
  const known = [
    event("end", RUN),
    event("error", { message: "the key was revoked" }),
    event("other", {}),
  ].reduce(noteEvent, NOTHING_YET);

  expect([known.state, known.ended, known.broken]).toEqual(["succeeded", RUN, "the key was revoked"]);
});

test("an end is said in words", () => {
  expect(endOf(RUN)).toBe("exit 0");
  expect(endOf({ ...RUN, ended_by: "out_of_fuel", exit_code: null })).toBe("out of fuel");
  expect(endOf({ ...RUN, ended_by: null })).toBe("–");
  expect([null, "queued", "running", "crashed"].map((one) => isOver(one as Run["state"] | null))).toEqual([
    false,
    false,
    false,
    true,
  ]);
});

test("a run takes from its start to its end, or until now", () => {
  expect(tookMs(RUN, 9_000)).toBe(1_500);
  expect(tookMs({ ...RUN, ended_ms: null }, 9_000)).toBe(7_000);
  expect(tookMs({ ...RUN, started_ms: null }, 9_000)).toBeNull();
});
