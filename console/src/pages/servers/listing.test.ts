import { expect, test } from "vitest";
import { filterRows, readFilter, tagsOf, toRows } from "./listing";
import type { Server } from "./server-form";

function server(server_id: string, more: Partial<Server> = {}): Server {
  const bare = {
    server_id,
    transport: "stdio",
    revision: 1,
    updated_at_ms: 1,
    health: null,
    nodes: [],
    login: null,
    offer: null,
  };
  return { ...bare, ...more } as Server;
}

function health(state: string, last_error = ""): Server["health"] {
  return { state, last_error, tools: 3 } as Server["health"];
}

const SERVERS = [
  server("git", { tags: ["code"], health: health("connected", "an old failure") }),
  server("web", {
    transport: "streamable_http",
    display_name: "The Web",
    health: health("down", "no route"),
  }),
  server("far", {
    nodes: [
      { node_id: "a", state: "connected", tools: 2 },
      { node_id: "b", state: "down", last_error: "gone", tools: 0 },
    ] as Server["nodes"],
  }),
];

test("a row shows the health of a server, and the last error only while it lasts", () => {
  const rows = toRows(SERVERS, undefined);
  expect(rows.map((one) => [one.status.words, one.status.cause, one.calls])).toEqual([
    ["connected", "", null],
    ["failed", "no route", null],
    ["failed", "gone", null],
  ]);
});

test("who was not called has no calls; what is not counted is not known", () => {
  const counted = [{ server_id: "git", calls: 7, errors: 1, p50_ms: 2, p95_ms: 9, last_ms: 5 }];
  expect(toRows(SERVERS, counted).map((one) => [one.calls, one.p95])).toEqual([
    [7, 9],
    [0, null],
    [0, null],
  ]);
});

test.each([
  ["q=GIT", ["git"]],
  ["q=code", ["git"]],
  ["q=web+route", ["web"]],
  ["state=down", ["web", "far"]],
  ["transport=streamable_http", ["web"]],
  ["tag=code", ["git"]],
  ["tag=code&state=down", []],
  ["", ["git", "web", "far"]],
])("the filter %j leaves %j", (query, ids) => {
  const left = filterRows(toRows(SERVERS, undefined), readFilter(new URLSearchParams(query)));
  expect(left.map((one) => one.server.server_id)).toEqual(ids);
});

test("every tag is offered once", () => {
  expect(tagsOf([server("a", { tags: ["y", "x"] }), server("b", { tags: ["x"] }), server("c")])).toEqual([
    "x",
    "y",
  ]);
});
