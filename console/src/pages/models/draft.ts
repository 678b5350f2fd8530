/** A chat upstream as the form has it, and the record it becomes. */
import type { Shapes } from "@/api/client";
import { mergedFields } from "@/parts/use-draft";

export type Upstream = Shapes["ChatUpstreamShown"];
export type Body = Shapes["ChatUpstreamSent"];
type Budgets = Shapes["ChatBudgetsBody"];

export interface Header {
  readonly name: string;
  readonly value: string;
}

export interface Draft {
  readonly upstream_id: string;
  readonly display_name: string;
  readonly base_url: string;
  readonly models: readonly string[];
  readonly auth_ref: string;
  readonly headers: readonly Header[];
  readonly mode: Upstream["mode"];
  readonly name_profile: Upstream["name_profile"];
  readonly other_tools: Upstream["other_tools"];
  readonly filter_undeclared_calls: boolean;
  readonly budgets: Budgets;
  readonly answer_timeout_ms: number;
  readonly max_concurrency: number;
  readonly enabled: boolean;
}

/** As the gateway fills in what is left out. */
export const NEW: Upstream = {
  upstream_id: "",
  display_name: "",
  base_url: "",
  models: [],
  headers: {},
  mode: "inject",
  name_profile: "default",
  other_tools: "pass",
  filter_undeclared_calls: false,
  budgets: {
    max_iterations: 8,
    max_total_tool_calls: 32,
    max_tool_output_bytes: 65_536,
    tool_timeout_ms: 30_000,
    wall_clock_ms: 300_000,
  },
  answer_timeout_ms: 60_000,
  max_concurrency: 64,
  enabled: true,
  revision: 0,
};

export function draftOf(record: Upstream): Draft {
  const { revision: _, headers, auth_ref, ...rest } = record;
  return {
    ...rest,
    auth_ref: auth_ref ?? "",
    headers: Object.entries(headers).map(([name, value]) => ({ name, value })),
  };
}

export function bodyOf(draft: Draft): Body {
  const headers = draft.headers.filter((one) => one.name.trim() !== "");
  return {
    ...draft,
    upstream_id: draft.upstream_id.trim(),
    base_url: draft.base_url.trim(),
    models: [...draft.models],
    auth_ref: draft.auth_ref.trim() || null,
    headers: Object.fromEntries(headers.map((one) => [one.name.trim(), one.value])),
  };
}

/** What was typed stays, and all else becomes what is there now. */
export function rebased(draft: Draft, old: Upstream, fresh: Upstream): Draft {
  return mergedFields(draft, draftOf(old), draftOf(fresh));
}

export interface NumberField {
  readonly name: "answer_timeout_ms" | "max_concurrency";
  readonly label: string;
  readonly about: string;
  readonly min: number;
  readonly max: number;
}

export const NUMBERS: readonly NumberField[] = [
  {
    name: "answer_timeout_ms",
    label: "Response timeout (ms)",
    about: "Until the response starts, and between two chunks.",
    min: 100,
    max: 3_600_000,
  },
  {
    name: "max_concurrency",
    label: "Concurrent requests",
    about: "More requests are rejected.",
    min: 1,
    max: 10_000,
  },
];

export interface BudgetField extends Omit<NumberField, "name"> {
  readonly name: keyof Budgets;
}

export const BUDGETS: readonly BudgetField[] = [
  { name: "max_iterations", label: "Tool rounds", about: "Rounds of tool calls per chat.", min: 0, max: 100 },
  {
    name: "max_total_tool_calls",
    label: "Tool calls",
    about: "In all rounds.",
    min: 0,
    max: 1_000,
  },
  {
    name: "max_tool_output_bytes",
    label: "Result size (bytes)",
    about: "Longer results are truncated and marked.",
    min: 256,
    max: 4_194_304,
  },
  {
    name: "tool_timeout_ms",
    label: "Tool call timeout (ms)",
    about: "The server's call timeout applies too.",
    min: 100,
    max: 300_000,
  },
  {
    name: "wall_clock_ms",
    label: "Chat timeout (ms)",
    about: "Models and tools together.",
    min: 1_000,
    max: 3_600_000,
  },
];
