/** A workload as the form has it. */
import type { Shapes } from "@/api/client";
import type { Workload } from "./draft";

export type Limit = keyof Shapes["WorkloadLimitsBody"];

interface Bounds {
  readonly title: string;
  readonly usual: number;
  readonly min: number;
  readonly max: number;
}

export const LIMITS: Readonly<Record<Limit, Bounds>> = {
  fuel: {
    title: "Fuel (instructions, about)",
    usual: 20_000_000_000,
    min: 1_000_000,
    max: 10_000_000_000_000,
  },
  wall_clock_ms: { title: "Timeout (ms)", usual: 60_000, min: 100, max: 3_600_000 },
  memory_bytes: { title: "Memory (bytes)", usual: 67_108_864, min: 65_536, max: 1_073_741_824 },
  table_elements: { title: "Table entries", usual: 10_000, min: 0, max: 1_000_000 },
  max_output_bytes: { title: "Output (bytes)", usual: 262_144, min: 0, max: 4_194_304 },
  max_fds: { title: "Open descriptors", usual: 64, min: 1, max: 1_024 },
  max_calls: { title: "Tool calls", usual: 1_000, min: 0, max: 100_000 },
};

export const NEW_WORKLOAD: Workload = {
  module: "",
  args: [],
  env: {},
  limits: Object.fromEntries(
    Object.entries(LIMITS).map(([name, { usual }]) => [name, usual]),
  ) as Workload["limits"],
  retries: 0,
};

export function linesOf(env: Readonly<Record<string, string>>): string[] {
  return Object.entries(env).map(([name, value]) => `${name}=${value}`);
}

/** The variables in `lines`; the first `=` parts the two, and the last line of a name holds. */
export function envOf(lines: readonly string[]): Record<string, string> {
  return Object.fromEntries(
    lines.map((line) => {
      const [name = "", ...value] = line.split("=");
      return [name.trim(), value.join("=")];
    }),
  );
}
