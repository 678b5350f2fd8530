/** The sections of the form of a server: their fields, and what is set in each, in a line. */

import { BLANK, type ServerForm, toBody, toForm } from "./server-form";
import { shellLine } from "./shell-line";

export interface Section {
  readonly key: string;
  readonly title: string;
  /** The paths whose problems are shown in it. */
  readonly paths: readonly string[];
  readonly summary: (form: ServerForm) => string;
}

const USUAL = toForm(BLANK);

function many(number: number, one: string): string {
  return number === 1 ? `1 ${one}` : `${number} ${one}s`;
}

function listed(parts: readonly string[], none: string): string {
  return parts.filter(Boolean).join(", ") || none;
}

function isChanged(form: ServerForm, name: keyof ServerForm): boolean {
  return JSON.stringify(form[name]) !== JSON.stringify(USUAL[name]);
}

function connection(form: ServerForm): string {
  if (form.transport !== "stdio") return form.url || "no URL yet";
  const { stdio } = toBody(form);
  return stdio && form.command !== "" ? shellLine(stdio) : "no command yet";
}

const LIMITS = {
  tool_timeout_ms: "call timeout",
  max_concurrency: "concurrent calls",
  max_tool_output_bytes: "result size",
  sharing: "one connection per session",
  idle_timeout_s: "idle timeout",
  start_timeout_s: "start timeout",
  list_ttl_s: "refresh interval",
  prewarm: "stays connected",
} as const;

export const SECTIONS: readonly Section[] = [
  {
    key: "general",
    title: "General",
    paths: ["server_id", "display_name", "category", "tags", "enabled"],
    summary: (form) =>
      listed([form.server_id, form.display_name, ...form.tags, form.enabled ? "" : "disabled"], "no ID yet"),
  },
  {
    key: "connection",
    title: "Connection",
    paths: ["transport", "stdio", "http", "package"],
    summary: connection,
  },
  {
    key: "tools",
    title: "Tools",
    paths: ["allowed_tools", "tool_namespace"],
    summary: (form) => listed(form.allowed_tools.slice(0, 6), "none allowed"),
  },
  {
    key: "approvals",
    title: "Approvals",
    paths: ["approval_policy"],
    summary: (form) =>
      listed(
        [form.approval_default, form.per_tool.length > 0 ? many(form.per_tool.length, "exception") : ""],
        "",
      ),
  },
  {
    key: "redaction",
    title: "Redaction of arguments",
    paths: ["redaction"],
    summary: (form) => {
      const hidden = form.hide.length > 0 ? `${many(form.hide.length, "name")} hidden` : "";
      const shown = form.show.length > 0 ? `${many(form.show.length, "name")} shown` : "";
      return listed(
        [hidden, shown, form.audited === "none" ? "arguments not logged" : ""],
        "detected secrets only",
      );
    },
  },
  {
    key: "limits",
    title: "Limits and connections",
    paths: ["budgets", "sharing", "idle_timeout_s", "start_timeout_s", "list_ttl_s", "prewarm"],
    summary: (form) => {
      const names = Object.keys(LIMITS) as (keyof typeof LIMITS)[];
      return listed(
        names.filter((one) => isChanged(form, one)).map((one) => LIMITS[one]),
        "defaults",
      );
    },
  },
];
