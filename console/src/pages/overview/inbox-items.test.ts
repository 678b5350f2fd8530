import { expect, test } from "vitest";
import { type Attention, attentionOf } from "@/parts/attention-of";
import { firstOfEach, itemsOf, MOST_OF_A_KIND, pageOf } from "./inbox-items";

const NOW = 1_000_000_000_000;
const server = (server_id: string, state: string, rest = {}) => ({
  server_id,
  health: { state, last_error: "cannot connect", hint: "check `url`", tools: 0 },
  nodes: [],
  login: null,
  ...rest,
});

const nothing = { servers: [], pins: [], keys: [], findings: [], approvals: [] };

function items(found: object) {
  const attention = attentionOf({ ...nothing, ...found } as Parameters<typeof attentionOf>[0], NOW);
  return itemsOf(attention);
}

test("servers that are down say why, and lead to themselves", () => {
  const [found, ...others] = items({ servers: [server("a b", "down"), server("ok", "connected")] });
  expect(others).toEqual([]);
  expect(found).toMatchObject({
    cause: "cannot connect. check `url`",
    path: "/servers/a%20b",
    act: "Open server",
  });
});

test("a login that the gateway renews needs no one", () => {
  const soon = NOW / 1_000 + 60;
  const login = (renews: boolean, expires_at_s: number | null) => ({
    login: { issuer: "i", renews, expires_at_s },
  });
  const found = items({
    servers: [
      server("renews", "connected", login(true, soon)),
      server("ends", "connected", login(false, soon)),
      server("unknown", "connected", login(false, null)),
    ],
  });
  expect(found.map((one) => one.key)).toEqual(["login ends"]);
});

test("keys count when they have expired or expire within a week", () => {
  const key = (key_id: string, expires_at_s: number | null) => ({ key_id, expires_at_s });
  const found = items({
    keys: [
      key("past", 1),
      key("soon", NOW / 1_000 + 3_600),
      key("later", NOW / 1_000 + 9e6),
      key("never", null),
    ],
  });
  expect(found.map((one) => one.name)).toEqual(["past", "soon"]);
});

test("a finding leads to the record that it is about", () => {
  expect(pageOf({ kind: "profile", id: "r/w" })).toBe("/profiles/r%2Fw");
  expect(pageOf({ kind: "task", id: "t" })).toBe("/tasks/t");
});

test("many of one kind do not hide the others", () => {
  const down = Array.from({ length: 9 }, (_, place) => server(`s${place}`, "down"));
  const found = { ...nothing, servers: down, pins: [{ server_id: "p", waiting: ["t"] }] };
  const { shown, rest } = firstOfEach(items(found as unknown as Attention));
  expect(shown).toHaveLength(MOST_OF_A_KIND + 1);
  expect(rest).toEqual([{ kind: "server", many: 5, path: "/servers?state=down" }]);
});
