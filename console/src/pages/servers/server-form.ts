/** A server's record as a form holds it, flat and with everything filled in; and back. */
import type { Shapes } from "@/api/client";

export type Server = Shapes["ServerShown"];
export type Body = Shapes["ServerSent"];
export type Transport = Body["transport"];
export type Approval = NonNullable<Shapes["ApprovalBody"]["default"]>;
export type Grant = Shapes["OAuthBody"]["grant"];
export type Authentication = "none" | "secret" | "oauth";

export interface Pair<Value extends string = string> {
  readonly key: string;
  readonly value: Value;
}

/** A number as its input has it: text while it is being typed. */
export type Typed = number | string;

export interface ServerForm {
  readonly server_id: string;
  readonly display_name: string;
  readonly category: string;
  readonly tags: readonly string[];
  readonly enabled: boolean;
  readonly transport: Transport;
  readonly command: string;
  readonly args: readonly string[];
  readonly env: readonly Pair[];
  readonly env_from: readonly string[];
  readonly cwd: string;
  readonly url: string;
  readonly headers: readonly Pair[];
  readonly authentication: Authentication;
  readonly auth_ref: string;
  readonly grant: Grant;
  readonly client_id: string;
  readonly client_secret_ref: string;
  readonly issuer: string;
  readonly scopes: readonly string[];
  readonly per_principal: boolean;
  readonly allowed_tools: readonly string[];
  readonly tool_namespace: string;
  readonly approval_default: Approval;
  readonly per_tool: readonly Pair<Approval>[];
  readonly in_place: boolean;
  readonly tool_timeout_ms: Typed;
  readonly max_concurrency: Typed;
  readonly max_tool_output_bytes: Typed;
  readonly sharing: NonNullable<Body["sharing"]>;
  readonly idle_timeout_s: Typed;
  readonly start_timeout_s: Typed;
  readonly list_ttl_s: Typed;
  readonly prewarm: boolean;
  readonly hide: readonly string[];
  readonly show: readonly string[];
  readonly audited: NonNullable<Shapes["RedactionBody"]["arguments"]>;
  readonly package: Shapes["PackageRefBody"] | null;
}

const BUDGETS = { tool_timeout_ms: 30_000, max_concurrency: 16, max_tool_output_bytes: 1_048_576 };

/** An empty form; its names are all members that a form knows. */
export const BLANK: Body = { transport: "stdio" };
const KNOWN = new Set([
  ...[
    "version",
    "server_id",
    "transport",
    "stdio",
    "http",
    "display_name",
    "tool_namespace",
    "allowed_tools",
  ],
  ...["approval_policy", "budgets", "tags", "category", "enabled", "sharing", "idle_timeout_s", "prewarm"],
  ...["start_timeout_s", "list_ttl_s"],
  ...["redaction", "package", "revision", "updated_at_ms", "health", "nodes", "login", "offer"],
]);

function pairs<Value extends string>(table: Readonly<Record<string, Value>> | undefined): Pair<Value>[] {
  return Object.entries(table ?? {}).map(([key, value]) => ({ key, value }));
}

function stdioPart(stdio: Shapes["StdioBody"] | null | undefined) {
  return {
    command: stdio?.command ?? "",
    args: stdio?.args ?? [],
    env: pairs(stdio?.env),
    env_from: stdio?.env_from ?? [],
    cwd: stdio?.cwd ?? "",
  };
}

function httpPart(http: Shapes["HttpBody"] | null | undefined) {
  const oauth = http?.oauth;
  const authentication: Authentication = oauth ? "oauth" : http?.auth_ref ? "secret" : "none";
  return {
    url: http?.url ?? "",
    headers: pairs(http?.headers),
    authentication,
    auth_ref: http?.auth_ref ?? "",
    grant: oauth?.grant ?? "authorization_code",
    client_id: oauth?.client_id ?? "",
    client_secret_ref: oauth?.client_secret_ref ?? "",
    issuer: oauth?.issuer ?? "",
    scopes: oauth?.scopes ?? [],
    per_principal: oauth?.per_principal ?? false,
  };
}

function approvalPart(policy: Shapes["ApprovalBody"] | undefined) {
  return {
    approval_default: policy?.default ?? ("never" as const),
    per_tool: pairs(policy?.per_tool),
    in_place: policy?.in_place ?? true,
  };
}

function connectionPart(body: Body) {
  return {
    sharing: body.sharing ?? ("shared" as const),
    idle_timeout_s: body.idle_timeout_s ?? 0,
    start_timeout_s: body.start_timeout_s ?? 0,
    list_ttl_s: body.list_ttl_s ?? 0,
    prewarm: body.prewarm ?? false,
  };
}

/** A record, of which anything may be missing, as a form. */
export function toForm(body: Body): ServerForm {
  return {
    server_id: body.server_id ?? "",
    display_name: body.display_name ?? "",
    category: body.category ?? "",
    tags: body.tags ?? [],
    enabled: body.enabled ?? true,
    transport: body.transport,
    ...stdioPart(body.stdio),
    ...httpPart(body.http),
    allowed_tools: body.allowed_tools ?? [],
    tool_namespace: body.tool_namespace ?? "",
    ...approvalPart(body.approval_policy),
    ...BUDGETS,
    ...body.budgets,
    ...connectionPart(body),
    hide: body.redaction?.hide ?? [],
    show: body.redaction?.show ?? [],
    audited: body.redaction?.arguments ?? "redacted",
    package: body.package ?? null,
  };
}

function table<Value extends string>(rows: readonly Pair<Value>[]): Record<string, Value> {
  return Object.fromEntries(rows.map(({ key, value }) => [key, value]));
}

function textOrNull(text: string): string | null {
  return text === "" ? null : text;
}

/** An invalid number is sent as it is: the gateway's validation reports it. */
function numberOf(typed: Typed): number {
  return typed === "" ? Number.NaN : Number(typed);
}

function toStdio(form: ServerForm): Shapes["StdioBody"] {
  return {
    command: form.command,
    args: [...form.args],
    env: table(form.env),
    env_from: [...form.env_from],
    cwd: textOrNull(form.cwd),
  };
}

function toOAuth(form: ServerForm): Shapes["OAuthBody"] {
  return {
    grant: form.grant,
    client_id: textOrNull(form.client_id),
    client_secret_ref: textOrNull(form.client_secret_ref),
    issuer: textOrNull(form.issuer),
    scopes: [...form.scopes],
    per_principal: form.per_principal,
  };
}

function toHttp(form: ServerForm): Shapes["HttpBody"] {
  return {
    url: form.url,
    headers: table(form.headers),
    auth_ref: form.authentication === "secret" ? textOrNull(form.auth_ref) : null,
    oauth: form.authentication === "oauth" ? toOAuth(form) : null,
  };
}

/** The record that a form describes. */
export function toBody(form: ServerForm): Body {
  const isStdio = form.transport === "stdio";
  return {
    version: 1,
    server_id: form.server_id,
    transport: form.transport,
    stdio: isStdio ? toStdio(form) : null,
    http: isStdio ? null : toHttp(form),
    display_name: form.display_name,
    tool_namespace: textOrNull(form.tool_namespace),
    allowed_tools: [...form.allowed_tools],
    approval_policy: {
      default: form.approval_default,
      per_tool: table(form.per_tool),
      in_place: form.in_place,
    },
    budgets: {
      tool_timeout_ms: numberOf(form.tool_timeout_ms),
      max_concurrency: numberOf(form.max_concurrency),
      max_tool_output_bytes: numberOf(form.max_tool_output_bytes),
    },
    tags: [...form.tags],
    category: form.category,
    enabled: form.enabled,
    sharing: form.sharing,
    idle_timeout_s: numberOf(form.idle_timeout_s),
    start_timeout_s: numberOf(form.start_timeout_s),
    list_ttl_s: numberOf(form.list_ttl_s),
    prewarm: form.prewarm,
    redaction: { hide: [...form.hide], show: [...form.show], arguments: form.audited },
    package: form.package,
  };
}

/** Members of a record that the form does not have and would lose. */
export function unknownMembers(body: object): string[] {
  return Object.keys(body).filter((name) => !KNOWN.has(name));
}

export function isSame(one: unknown, other: unknown): boolean {
  return JSON.stringify(one) === JSON.stringify(other);
}

/** The input, merged over a newer stored record. `base` is what both started from. */
export function rebase(base: ServerForm, typed: ServerForm, theirs: ServerForm): ServerForm {
  const names = Object.keys(base) as (keyof ServerForm)[];
  const kept = names.filter((name) => !isSame(base[name], typed[name]));
  return { ...theirs, ...Object.fromEntries(kept.map((name) => [name, typed[name]])) };
}
