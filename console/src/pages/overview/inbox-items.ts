/** What needs a person, as lines of the inbox: what it is, why, and where to act on it. */
import type { components } from "@/api/schema";
import type { Attention } from "@/parts/attention-of";
import { standing } from "@/parts/standing";

type Shapes = components["schemas"];

export type Kind = "server" | "login" | "approval" | "pin" | "key" | "finding";

export interface Item {
  readonly kind: Kind;
  readonly key: string;
  /** Of what: the name of a record, or of a caller. */
  readonly name: string;
  readonly what: string;
  /** The cause, as the gateway says it. */
  readonly cause: string;
  readonly path: string;
  /** The next action. */
  readonly act: string;
  /** When it ends by itself, in unix milliseconds. */
  readonly endsMs: number | null;
}

/** Where the record of a finding is. */
const PAGES: Readonly<Partial<Record<Shapes["FindingShown"]["kind"], string>>> = {
  server: "/servers",
  task: "/tasks",
  profile: "/profiles",
  key: "/keys",
  pin: "/pins",
  chat_upstream: "/models",
};

/** Findings that are about more than a rule without effect. */
const FINDINGS: Readonly<Partial<Record<Shapes["FindingShown"]["code"], string>>> = {
  possible_secret: "may show a secret",
  invalid_record: "is invalid",
  not_enforced: "is not enforced",
  no_annotations: "has rules on hints that its tools lack",
  unknown_profile: "names a profile that does not exist",
  unknown_server: "names a server that does not exist",
  unknown_task: "names a task that does not exist",
  disabled_server: "names a disabled server",
  no_servers: "reaches no server",
};

export function pageOf(finding: Pick<Shapes["FindingShown"], "kind" | "id">): string {
  const page = PAGES[finding.kind];
  return page === undefined ? "/tasks" : `${page}/${encodeURIComponent(finding.id)}`;
}

const many = (value: number, one: string, more: string) => (value === 1 ? `1 ${one}` : `${value} ${more}`);

/** The lines, the most urgent kind first. */
export function itemsOf(found: Attention): Item[] {
  return [
    ...found.down.map((one): Item => {
      const { lastError, hint } = standing(one);
      return {
        kind: "server",
        key: `server ${one.server_id}`,
        name: one.server_id,
        what: "is down",
        cause: [lastError, hint].filter(Boolean).join(". "),
        path: `/servers/${encodeURIComponent(one.server_id)}`,
        act: "Open server",
        endsMs: null,
      };
    }),
    ...found.logins.map(
      (one): Item => ({
        kind: "login",
        key: `login ${one.server_id}`,
        name: one.server_id,
        what: "needs a new login",
        cause: "The gateway cannot renew it by itself.",
        path: `/servers/${encodeURIComponent(one.server_id)}`,
        act: "Log in",
        endsMs: one.login?.expires_at_s ? one.login.expires_at_s * 1_000 : null,
      }),
    ),
    ...found.approvals.map(
      (one): Item => ({
        kind: "approval",
        key: `approval ${one.approval_id}`,
        name: one.principal,
        what: `wants to call ${one.server_id}.${one.tool}`,
        cause: one.task_id ? `For the task ${one.task_id}.` : "",
        path: `/approvals/${encodeURIComponent(one.approval_id)}`,
        act: "Decide",
        endsMs: one.expires_ms,
      }),
    ),
    ...found.pins.map(
      (one): Item => ({
        kind: "pin",
        key: `pin ${one.server_id}`,
        name: one.server_id,
        what: `has ${many(one.waiting.length, "changed tool", "changed tools")}`,
        cause: `Quarantined until approved: ${one.waiting.slice(0, 5).join(", ")}${one.waiting.length > 5 ? ", …" : ""}`,
        path: `/pins/${encodeURIComponent(one.server_id)}`,
        act: "Review the change",
        endsMs: null,
      }),
    ),
    ...found.keys.map(
      (one): Item => ({
        kind: "key",
        key: `key ${one.key_id}`,
        name: one.key_id,
        what: "must be replaced",
        cause: "Calls with an expired key fail.",
        path: `/keys/${encodeURIComponent(one.key_id)}`,
        act: "Open key",
        endsMs: one.expires_at_s ? one.expires_at_s * 1_000 : null,
      }),
    ),
    ...found.findings.map(
      (one): Item => ({
        kind: "finding",
        key: `finding ${one.where} ${one.rule} ${one.subject}`,
        name: one.id,
        what: `(${one.kind.replace("_", " ")}) ${FINDINGS[one.code] ?? "has a rule without effect"}`,
        cause: one.message,
        path: pageOf(one),
        act: `Open ${one.kind.replace("_", " ")}`,
        endsMs: null,
      }),
    ),
  ];
}

/** At most this many lines of one kind; the rest are behind one more line. */
export const MOST_OF_A_KIND = 4;

export interface Rest {
  readonly kind: Kind;
  readonly many: number;
  readonly path: string;
}

const LISTS: Readonly<Record<Kind, string>> = {
  server: "/servers?state=down",
  login: "/servers",
  approval: "/approvals",
  pin: "/pins",
  key: "/keys",
  finding: "/tasks",
};

/** The first lines of each kind, and what is left of it. */
export function firstOfEach(items: readonly Item[]): { shown: Item[]; rest: Rest[] } {
  const kinds = [...new Set(items.map((one) => one.kind))];
  const of = (kind: Kind) => items.filter((one) => one.kind === kind);
  return {
    shown: kinds.flatMap((kind) => of(kind).slice(0, MOST_OF_A_KIND)),
    rest: kinds
      .map((kind) => ({ kind, many: of(kind).length - MOST_OF_A_KIND, path: LISTS[kind] }))
      .filter((one) => one.many > 0),
  };
}
