/** The form of a server: every field of its record. */
import { Anchor, Input, SegmentedControl, Select, SimpleGrid, Stack, Switch } from "@mantine/core";
import { labelOf, NumberField, PairsField, TextField, told, WordsField } from "./fields";
import { RANGES } from "./problems";
import { EndpointFields, LaunchFields } from "./reach-fields";
import type { Approval, ServerForm } from "./server-form";

export interface FormProps {
  readonly form: ServerForm;
  readonly set: (changed: Partial<ServerForm>) => void;
  /** The problem of the field at this path. */
  readonly problem: (path: string) => string | undefined;
}

const TRANSPORTS = [
  { value: "stdio", label: "stdio" },
  { value: "streamable_http", label: "Streamable HTTP" },
  { value: "http_sse_legacy", label: "HTTP+SSE (deprecated)" },
] as const;
const APPROVALS: readonly Approval[] = ["never", "policy", "always"];

export function IdentityFields({ form, set, problem, isNew }: FormProps & { readonly isNew: boolean }) {
  return (
    <div>
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <TextField
          label="ID"
          help="server_id"
          about="Part of URLs, rules and tool names. It cannot be changed later."
          value={form.server_id}
          onChange={(server_id) => set({ server_id })}
          problem={problem("server_id")}
          isNeeded
          isFixed={!isNew}
          isMono
        />
        <TextField
          label="Display name"
          help="display_name"
          about="Shown in lists instead of the ID."
          value={form.display_name}
          onChange={(display_name) => set({ display_name })}
          problem={problem("display_name")}
        />
        <WordsField
          label="Tags"
          help="tags"
          about="Profiles and tasks can select servers by tag."
          value={form.tags}
          onChange={(tags) => set({ tags })}
          problem={problem("tags")}
          placeholder="Type a tag, press Enter"
        />
        <TextField
          label="Category"
          help="category"
          about="The heading it is listed under."
          value={form.category}
          onChange={(category) => set({ category })}
          problem={problem("category")}
        />
      </SimpleGrid>
      <Switch
        mt="md"
        label={labelOf("Enabled", "enabled")}
        aria-label="Enabled"
        description="Off: the server stays registered, but its tools are not offered."
        checked={form.enabled}
        onChange={(event) => set({ enabled: event.currentTarget.checked })}
      />
    </div>
  );
}

export function ReachFields(props: FormProps) {
  const { form, set, problem } = props;
  return (
    <div>
      <Stack>
        <SegmentedControl
          transitionDuration={0}
          aria-label="Transport"
          value={form.transport}
          data={[...TRANSPORTS]}
          onChange={(transport) => set({ transport })}
          orientation="horizontal"
          style={{ alignSelf: "flex-start", maxWidth: "100%" }}
        />
        {problem("transport") ? <Input.Error>{told(problem("transport"))}</Input.Error> : null}
        {form.transport === "stdio" ? <LaunchFields {...props} /> : <EndpointFields {...props} />}
      </Stack>
    </div>
  );
}

export function OfferFields({ form, set, problem }: FormProps) {
  return (
    <div>
      <Stack>
        <WordsField
          label="Allowed tools"
          help="allowed_tools"
          about={
            <>
              Patterns of tools that the server may offer. Empty: none.{" "}
              <Anchor
                component="button"
                type="button"
                size="xs"
                onClick={() => set({ allowed_tools: ["*"] })}
              >
                Allow all tools
              </Anchor>
            </>
          }
          value={form.allowed_tools}
          onChange={(allowed_tools) => set({ allowed_tools })}
          problem={problem("allowed_tools")}
          placeholder="read_*, @read_only, * – press Enter after each"
        />
        <TextField
          label="Tool namespace"
          help="tool_namespace"
          about="Prefix of tool names for models. Default: mcp. and the ID."
          value={form.tool_namespace}
          onChange={(tool_namespace) => set({ tool_namespace })}
          problem={problem("tool_namespace")}
          placeholder={`mcp.${form.server_id}`}
          isMono
        />
      </Stack>
    </div>
  );
}

export function ApprovalFields({ form, set, problem }: FormProps) {
  return (
    <div>
      <Stack>
        <Select
          label={labelOf("Approval required for tool calls", "approval_policy.default")}
          aria-label="Approval required for tool calls"
          description="policy: for tools that are not marked read-only."
          value={form.approval_default}
          data={[...APPROVALS]}
          allowDeselect={false}
          onChange={(chosen) =>
            set({ approval_default: APPROVALS.find((one) => one === chosen) ?? form.approval_default })
          }
        />
        <PairsField
          label="Exceptions by tool"
          help="approval_policy.per_tool"
          about="A tool's name, a pattern with * and ?, or an effect like @destructive. An exact name takes precedence over patterns."
          one="tool"
          first="always"
          choices={APPROVALS}
          value={form.per_tool}
          onChange={(per_tool) => set({ per_tool })}
          problem={problem("approval_policy")}
          problemOf={(place) => problem(`approval_policy.per_tool[${place}]`)}
        />
        <Switch
          label={labelOf("Elicited approval", "approval_policy.in_place")}
          aria-label="Elicited approval"
          description="On: a client that supports elicitation may ask its user. Off: only operators approve."
          checked={form.in_place}
          onChange={(event) => set({ in_place: event.currentTarget.checked })}
        />
      </Stack>
    </div>
  );
}

export function RedactionFields({ form, set, problem }: FormProps) {
  return (
    <div>
      <Stack>
        <WordsField
          label="Hide"
          help="redaction.hide"
          about="Argument names; * and ? match others. Hidden from the audit log and from approvers, like detected secrets."
          value={form.hide}
          onChange={(hide) => set({ hide })}
          problem={problem("redaction.hide")}
        />
        <WordsField
          label="Do not hide"
          help="redaction.show"
          about="Argument names that look like secrets but are not, such as the key of a key-value store."
          value={form.show}
          onChange={(show) => set({ show })}
          problem={problem("redaction.show")}
        />
        <Switch
          label={labelOf("Log arguments", "redaction.arguments")}
          aria-label="Log arguments"
          description="Off: the audit log has no arguments. Approvers still see them."
          checked={form.audited === "redacted"}
          onChange={(event) => set({ audited: event.currentTarget.checked ? "redacted" : "none" })}
        />
      </Stack>
    </div>
  );
}

export function LimitFields({ form, set, problem }: FormProps) {
  return (
    <div>
      <SimpleGrid cols={{ base: 1, sm: 3 }}>
        <NumberField
          label="Call timeout"
          help="budgets.tool_timeout_ms"
          unit="ms"
          value={form.tool_timeout_ms}
          onChange={(tool_timeout_ms) => set({ tool_timeout_ms })}
          range={RANGES.tool_timeout_ms}
          problem={problem("budgets.tool_timeout_ms")}
        />
        <NumberField
          label="Concurrent calls"
          help="budgets.max_concurrency"
          value={form.max_concurrency}
          onChange={(max_concurrency) => set({ max_concurrency })}
          range={RANGES.max_concurrency}
          problem={problem("budgets.max_concurrency")}
        />
        <NumberField
          label="Maximum result size"
          help="budgets.max_tool_output_bytes"
          unit="bytes"
          value={form.max_tool_output_bytes}
          onChange={(max_tool_output_bytes) => set({ max_tool_output_bytes })}
          range={RANGES.max_tool_output_bytes}
          problem={problem("budgets.max_tool_output_bytes")}
        />
      </SimpleGrid>
      <SimpleGrid cols={{ base: 1, sm: 2 }} mt="md">
        <Select
          label={labelOf("Connection sharing", "sharing")}
          aria-label="Connection sharing"
          description="Per session: for servers that keep state or request roots from the client."
          value={form.sharing}
          data={[
            { value: "shared", label: "One connection for all callers" },
            { value: "per_session", label: "One connection per session" },
          ]}
          allowDeselect={false}
          onChange={(chosen) => set({ sharing: chosen === "per_session" ? "per_session" : "shared" })}
          error={told(problem("sharing"))}
        />
        <NumberField
          label="Idle timeout"
          help="idle_timeout_s"
          about="0: none for shared connections, 300 s for connections per session."
          unit="s"
          value={form.idle_timeout_s}
          onChange={(idle_timeout_s) => set({ idle_timeout_s })}
          range={RANGES.idle_timeout_s}
          problem={problem("idle_timeout_s")}
        />
        <NumberField
          label="Start timeout"
          help="start_timeout_s"
          about="0: 300 s for package runners such as npx and uvx, otherwise 10 s."
          unit="s"
          value={form.start_timeout_s}
          onChange={(start_timeout_s) => set({ start_timeout_s })}
          range={RANGES.start_timeout_s}
          problem={problem("start_timeout_s")}
        />
        <NumberField
          label="Refresh interval of lists"
          help="list_ttl_s"
          about="30 to 300. 0: the server's TTL, otherwise 120 s."
          unit="s"
          value={form.list_ttl_s}
          onChange={(list_ttl_s) => set({ list_ttl_s })}
          range={RANGES.list_ttl_s}
          problem={problem("list_ttl_s")}
        />
      </SimpleGrid>
      <Switch
        mt="md"
        label={labelOf("Stay connected", "prewarm")}
        aria-label="Stay connected"
        description="Connect at start-up, not on the first call. Reconnect at once if the connection ends."
        checked={form.prewarm}
        onChange={(event) => set({ prewarm: event.currentTarget.checked })}
      />
    </div>
  );
}
