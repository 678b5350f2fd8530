/** A record that a user writes as JSON. */
import type { Problem } from "./problems";
import { BLANK, type Body, unknownMembers } from "./server-form";

export interface Parsed {
  readonly body: Body;
  /** What can be checked without a request. */
  readonly problems: readonly Problem[];
  /** False: a form cannot show all of it. */
  readonly isForm?: boolean;
}

const TRANSPORTS = ["stdio", "streamable_http", "http_sse_legacy"];
/** The kind of value of the members that a form reads into. */
const TABLES = ["stdio", "http", "approval_policy", "budgets", "package"];

function refuse(problem: string): Parsed {
  return { body: BLANK, problems: [{ field: "", problem }], isForm: false };
}

/** Why a form could not show this record, empty where it can. */
function oddities(record: Readonly<Record<string, unknown>>): string[] {
  return [
    ...unknownMembers(record).map((name) => `${name} is not a known field`),
    ...(TRANSPORTS.includes(String(record.transport))
      ? []
      : ["transport must be `stdio`, `streamable_http` or `http_sse_legacy`"]),
    ...TABLES.filter((name) => typeof (record[name] ?? {}) !== "object").map(
      (name) => `${name} must be an object`,
    ),
  ];
}

export function parseJson(text: string): Parsed {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return refuse(`invalid JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return refuse("a record must be an object");
  const record = value as Body;
  const problems = oddities(value as Record<string, unknown>).map((problem) => ({ field: "", problem }));
  if (typeof record.server_id !== "string" || record.server_id === "")
    problems.push({ field: "", problem: "server_id is missing" });
  return { body: record, problems, isForm: problems.length === 0 };
}
