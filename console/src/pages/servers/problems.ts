/** Problems of a record by field, found here while typing, or by the gateway. */
import { ApiError } from "@/api/error";
import type { Pair, ServerForm, Typed } from "./server-form";

export interface Problem {
  /** A path like `stdio.args[2]`; empty: the record as a whole. */
  readonly field: string;
  readonly problem: string;
  /** The field is still empty: shown when the user wants to continue. */
  readonly isMissing?: boolean;
}

const SERVER_ID = /^[a-z0-9]+(?:[-_][a-z0-9]+)*$/;
const ID_RULE = "use up to 40 lower-case letters and digits, single - or _ between them";

/** The fields that a form shows a problem at. A problem of a part of one is shown there, too. */
export const SHOWN_AT = [
  ...["server_id", "display_name", "category", "tags", "enabled", "transport", "allowed_tools", "package"],
  ...["stdio.command", "stdio.args", "stdio.env", "stdio.env_from", "stdio.cwd", "http.url", "http.headers"],
  ...["http.auth_ref", "http.oauth", "tool_namespace", "approval_policy", "sharing", "idle_timeout_s"],
  ...["start_timeout_s", "list_ttl_s"],
  ...["budgets.tool_timeout_ms", "budgets.max_concurrency", "budgets.max_tool_output_bytes", "prewarm"],
  ...["redaction.hide", "redaction.show"],
];

/** The limits of the number fields. */
export const RANGES = {
  tool_timeout_ms: [100, 300_000],
  max_concurrency: [1, 1_024],
  max_tool_output_bytes: [1_024, 67_108_864],
  idle_timeout_s: [0, 2_592_000],
  start_timeout_s: [0, 3_600],
  list_ttl_s: [0, 300],
} as const;

function missing(field: string, problem: string): Problem {
  return { field, problem, isMissing: true };
}

function isWithin(path: string, field: string): boolean {
  return field === path || field.startsWith(`${path}.`) || field.startsWith(`${path}[`);
}

function rangeProblems(field: string, typed: Typed, [least, most]: readonly [number, number]): Problem[] {
  const value = Number(typed);
  const isFit = typed !== "" && Number.isInteger(value) && value >= least && value <= most;
  return isFit
    ? []
    : [{ field, problem: `must be a whole number from ${least} to ${most.toLocaleString("en")}` }];
}

/** Names that are empty or duplicate: a record would keep only one of two. */
function pairProblems(path: string, rows: readonly Pair[], fold: (key: string) => string): Problem[] {
  const seen = new Set<string>();
  return rows.flatMap(({ key }, place) => {
    const field = `${path}[${place}]`;
    if (key === "") return [missing(field, "enter a name, or remove the row")];
    const isTwice = seen.has(fold(key));
    seen.add(fold(key));
    return isTwice ? [{ field, problem: "duplicate name" }] : [];
  });
}

/** Why `id` cannot be that of a server; empty: it can. */
export function idProblem(id: string): string {
  if (id === "") return "enter an ID";
  return id.length <= 40 && SERVER_ID.test(id) ? "" : ID_RULE;
}

function idProblems(id: string): Problem[] {
  const problem = idProblem(id);
  if (id === "") return [missing("server_id", problem)];
  return problem === "" ? [] : [{ field: "server_id", problem }];
}

function launchProblems(form: ServerForm): Problem[] {
  const found = pairProblems("stdio.env", form.env, (key) => key);
  if (form.command === "") found.push(missing("stdio.command", "enter the command to start"));
  return found;
}

function endpointProblems(form: ServerForm): Problem[] {
  const found = pairProblems("http.headers", form.headers, (key) => key.toLowerCase());
  if (form.url === "") found.push(missing("http.url", "enter the server's URL"));
  else if (!/^https?:\/\/./.test(form.url))
    found.push({ field: "http.url", problem: "a URL must begin with http:// or https://" });
  if (form.authentication === "secret" && form.auth_ref === "")
    found.push(missing("http.auth_ref", "enter the secret's name"));
  if (form.authentication === "oauth" && form.transport === "http_sse_legacy")
    found.push({ field: "http.oauth", problem: "OAuth requires the transport Streamable HTTP" });
  return found;
}

/** What can be checked without a request. */
export function localProblems(form: ServerForm): Problem[] {
  return [
    ...idProblems(form.server_id),
    ...(form.transport === "stdio" ? launchProblems(form) : endpointProblems(form)),
    ...pairProblems("approval_policy.per_tool", form.per_tool, (key) => key),
    ...rangeProblems("budgets.tool_timeout_ms", form.tool_timeout_ms, RANGES.tool_timeout_ms),
    ...rangeProblems("budgets.max_concurrency", form.max_concurrency, RANGES.max_concurrency),
    ...rangeProblems(
      "budgets.max_tool_output_bytes",
      form.max_tool_output_bytes,
      RANGES.max_tool_output_bytes,
    ),
    ...rangeProblems("idle_timeout_s", form.idle_timeout_s, RANGES.idle_timeout_s),
    ...rangeProblems("start_timeout_s", form.start_timeout_s, RANGES.start_timeout_s),
    ...rangeProblems("list_ttl_s", form.list_ttl_s, RANGES.list_ttl_s),
  ];
}

/** The problems that the gateway found in a record. Null: it failed in another way. */
export function problemsOf(error: unknown): Problem[] | null {
  if (!(error instanceof ApiError) || error.code !== "invalid_record") return null;
  const told = error.data.problems;
  if (Array.isArray(told)) return told as Problem[];
  const named = /^`([^`]+)`: (.*)$/s.exec(error.message);
  const problem =
    error.hint === "" ? (named?.[2] ?? error.message) : `${named?.[2] ?? error.message}; ${error.hint}`;
  return [{ field: named?.[1] ?? "", problem }];
}

/** What to show at the field `path`: its problems, and those of its parts by name. */
export function problemAt(problems: readonly Problem[], path: string): string | undefined {
  const found = problems.filter((one) => isWithin(path, one.field));
  const told = found.map(({ field, problem }) =>
    field === path ? problem : `${field.slice(path.length).replace(/^\./, "")}: ${problem}`,
  );
  return told.length > 0 ? told.join("; ") : undefined;
}

/** Problems that belong to no field. */
export function unplaced(problems: readonly Problem[]): Problem[] {
  return problems.filter((one) => !SHOWN_AT.some((path) => isWithin(path, one.field)));
}
