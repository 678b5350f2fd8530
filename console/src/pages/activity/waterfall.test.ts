import { expect, test } from "vitest";
import { waterfallOf } from "./waterfall";
import type { Event } from "./words";

const event = (members: Partial<Event>) =>
  ({
    type: "call",
    duration_us: null,
    duration_ms: null,
    request_id: null,
    trace_id: null,
    approval_id: null,
    invocation_id: null,
    session: null,
    server_id: "git",
    tool: "log",
    outcome: "ok",
    ...members,
  }) as Event;

test("calls of one request are drawn from their start to their end", () => {
  const first = event({ event_id: "1", request_id: "r", at_ms: 1_100, duration_us: 100_000 });
  const second = event({ event_id: "2", request_id: "r", at_ms: 1_400, duration_us: 200_000 });
  const other = event({ event_id: "3", request_id: "x", at_ms: 5_000, duration_us: 1_000 });
  const found = waterfallOf(second, [first, other]);
  expect(found?.startMs).toBe(1_000);
  expect(found?.tookMs).toBe(400);
  expect(found?.bars.map((one) => [one.eventId, one.from, one.share])).toEqual([
    ["1", 0, 0.25],
    ["2", 0.5, 0.5],
  ]);
});

test("a run is drawn with the calls that it made", () => {
  const run = event({
    type: "invocation",
    event_id: "run",
    invocation_id: "i",
    at_ms: 200,
    duration_ms: 200,
  });
  const made = event({ event_id: "call", session: "i", at_ms: 150, duration_us: 50_000 });
  expect(waterfallOf(made, [run])?.bars.map((one) => one.eventId)).toEqual(["run", "call"]);
});

test("an event that took no time, and to which nothing belongs, is not drawn", () => {
  expect(waterfallOf(event({ event_id: "1", at_ms: 7 }), [])).toBeNull();
});
