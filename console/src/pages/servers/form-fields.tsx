/** The form of a server: every field of its record, in the order in which one thinks of them. */
import { Anchor, Fieldset, Input, SegmentedControl, Select, SimpleGrid, Stack, Switch } from "@mantine/core";
import { NumberField, PairsField, TextField, told, WordsField } from "./fields";
import { RANGES } from "./problems";
import { EndpointFields, LaunchFields } from "./reach-fields";
import type { Approval, ServerForm } from "./server-form";

export interface FormProps {
  readonly form: ServerForm;
  readonly set: (changed: Partial<ServerForm>) => void;
  /** What is wrong at the field of this path. */
  readonly problem: (path: string) => string | undefined;
}

const TRANSPORTS = [
  { value: "stdio", label: "Program" },
  { value: "streamable_http", label: "URL" },
  { value: "http_sse_legacy", label: "URL, old SSE" },
] as const;
const APPROVALS: readonly Approval[] = ["never", "policy", "always"];

export function FormFields(props: FormProps & { readonly isNew: boolean }) {
  return (
    <Stack gap="lg">
      <IdentityFields {...props} />
      <ReachFields {...props} />
      <OfferFields {...props} />
      <ApprovalFields {...props} />
      <RedactionFields {...props} />
      <LimitFields {...props} />
    </Stack>
  );
}

function IdentityFields({ form, set, problem, isNew }: FormProps & { readonly isNew: boolean }) {
  return (
    <Fieldset legend="What it is">
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <TextField
          label="Id"
          about="Its name in every URL, rule and tool name. It cannot be changed later."
          value={form.server_id}
          onChange={(server_id) => set({ server_id })}
          problem={problem("server_id")}
          isNeeded
          isFixed={!isNew}
          isMono
        />
        <TextField
          label="Display name"
          about="For people."
          value={form.display_name}
          onChange={(display_name) => set({ display_name })}
          problem={problem("display_name")}
        />
        <WordsField
          label="Tags"
          about="Words by which profiles and tasks select servers."
          value={form.tags}
          onChange={(tags) => set({ tags })}
          problem={problem("tags")}
          placeholder="Type one, then Enter"
        />
        <TextField
          label="Category"
          about="One heading to list it under."
          value={form.category}
          onChange={(category) => set({ category })}
          problem={problem("category")}
        />
      </SimpleGrid>
      <Switch
        mt="md"
        label="Enabled"
        description="Off: it stays registered, and nothing of it is offered."
        checked={form.enabled}
        onChange={(event) => set({ enabled: event.currentTarget.checked })}
      />
    </Fieldset>
  );
}

function ReachFields(props: FormProps) {
  const { form, set, problem } = props;
  return (
    <Fieldset legend="How to reach it">
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
    </Fieldset>
  );
}

function OfferFields({ form, set, problem }: FormProps) {
  return (
    <Fieldset legend="What it may offer">
      <Stack>
        <WordsField
          label="Allowed tools"
          about={
            <>
              Patterns of the tools it may offer at all; none without any.{" "}
              <Anchor
                component="button"
                type="button"
                size="xs"
                onClick={() => set({ allowed_tools: ["*"] })}
              >
                Allow all its tools
              </Anchor>
            </>
          }
          value={form.allowed_tools}
          onChange={(allowed_tools) => set({ allowed_tools })}
          problem={problem("allowed_tools")}
          placeholder="read_*, @read_only, * – type one, then Enter"
        />
        <TextField
          label="Tool namespace"
          about="What stands before a tool's name towards models. Unless given: mcp. and its id."
          value={form.tool_namespace}
          onChange={(tool_namespace) => set({ tool_namespace })}
          problem={problem("tool_namespace")}
          placeholder={`mcp.${form.server_id}`}
          isMono
        />
      </Stack>
    </Fieldset>
  );
}

function ApprovalFields({ form, set, problem }: FormProps) {
  return (
    <Fieldset legend="When a person is asked">
      <Stack>
        <Select
          label="Calls of its tools wait for a person"
          description="policy: those of tools that are not marked as read-only."
          value={form.approval_default}
          data={[...APPROVALS]}
          allowDeselect={false}
          onChange={(chosen) =>
            set({ approval_default: APPROVALS.find((one) => one === chosen) ?? form.approval_default })
          }
        />
        <PairsField
          label="Other for these tools"
          about="A tool's name, a pattern with * and ?, or an effect like @destructive. A name wins over patterns."
          one="tool"
          first="always"
          choices={APPROVALS}
          value={form.per_tool}
          onChange={(per_tool) => set({ per_tool })}
          problem={problem("approval_policy")}
          problemOf={(place) => problem(`approval_policy.per_tool[${place}]`)}
        />
        <Switch
          label="Ask who calls"
          description="Off: only operators approve, also where the caller's client could ask its user."
          checked={form.in_place}
          onChange={(event) => set({ in_place: event.currentTarget.checked })}
        />
      </Stack>
    </Fieldset>
  );
}

function RedactionFields({ form, set, problem }: FormProps) {
  return (
    <Fieldset legend="What is hidden of arguments">
      <Stack>
        <WordsField
          label="Hide these"
          about="Names, * and ?. Hidden in the activity and from whoever approves, as what looks like a secret is."
          value={form.hide}
          onChange={(hide) => set({ hide })}
          problem={problem("redaction.hide")}
        />
        <WordsField
          label="Show these"
          about="Names that look like those of secrets and are none, such as the key of a key-value store."
          value={form.show}
          onChange={(show) => set({ show })}
          problem={problem("redaction.show")}
        />
        <Switch
          label="Write arguments down"
          description="Off: the activity has none of them. Whoever approves a call sees them even so."
          checked={form.audited === "redacted"}
          onChange={(event) => set({ audited: event.currentTarget.checked ? "redacted" : "none" })}
        />
      </Stack>
    </Fieldset>
  );
}

function LimitFields({ form, set, problem }: FormProps) {
  return (
    <Fieldset legend="Limits and connections">
      <SimpleGrid cols={{ base: 1, sm: 3 }}>
        <NumberField
          label="Time limit of a call"
          unit="ms"
          value={form.tool_timeout_ms}
          onChange={(tool_timeout_ms) => set({ tool_timeout_ms })}
          range={RANGES.tool_timeout_ms}
          problem={problem("budgets.tool_timeout_ms")}
        />
        <NumberField
          label="Calls at once"
          value={form.max_concurrency}
          onChange={(max_concurrency) => set({ max_concurrency })}
          range={RANGES.max_concurrency}
          problem={problem("budgets.max_concurrency")}
        />
        <NumberField
          label="Largest result"
          unit="bytes"
          value={form.max_tool_output_bytes}
          onChange={(max_tool_output_bytes) => set({ max_tool_output_bytes })}
          range={RANGES.max_tool_output_bytes}
          problem={problem("budgets.max_tool_output_bytes")}
        />
      </SimpleGrid>
      <SimpleGrid cols={{ base: 1, sm: 2 }} mt="md">
        <Select
          label="Sharing"
          description="Per session: for servers that keep state, or ask their client for roots."
          value={form.sharing}
          data={[
            { value: "shared", label: "One connection for all callers" },
            { value: "per_session", label: "One connection for each session" },
          ]}
          allowDeselect={false}
          onChange={(chosen) => set({ sharing: chosen === "per_session" ? "per_session" : "shared" })}
          error={told(problem("sharing"))}
        />
        <NumberField
          label="Close when idle for"
          about="0: never, but after 300 s for connections of sessions."
          unit="s"
          value={form.idle_timeout_s}
          onChange={(idle_timeout_s) => set({ idle_timeout_s })}
          range={RANGES.idle_timeout_s}
          problem={problem("idle_timeout_s")}
        />
        <NumberField
          label="Give up a start after"
          about="0: after 300 s for package runners such as npx and uvx, else after 10 s."
          unit="s"
          value={form.start_timeout_s}
          onChange={(start_timeout_s) => set({ start_timeout_s })}
          range={RANGES.start_timeout_s}
          problem={problem("start_timeout_s")}
        />
        <NumberField
          label="Read lists again after"
          about="30 to 300. 0: as often as the server says, else every 120 s."
          unit="s"
          value={form.list_ttl_s}
          onChange={(list_ttl_s) => set({ list_ttl_s })}
          range={RANGES.list_ttl_s}
          problem={problem("list_ttl_s")}
        />
      </SimpleGrid>
      <Switch
        mt="md"
        label="Stay connected"
        description="Connected at start, not by the first call. A connection that ends is opened again at once."
        checked={form.prewarm}
        onChange={(event) => set({ prewarm: event.currentTarget.checked })}
      />
    </Fieldset>
  );
}
