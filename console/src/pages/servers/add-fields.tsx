/** What was recognised in a pasted server, its ID, and what it lacks. */
import { Alert, Badge, Group, PasswordInput, SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import { Help } from "@/parts/help";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { type Answers, answerOf, type Blank, isAnswered } from "./blanks";
import { TextField } from "./fields";
import type { Body } from "./server-form";
import { shellLine } from "./shell-line";
import type { Adding } from "./use-add";

const KINDS = { command: "Command", url: "URL", file: "Configuration" } as const;
const TRANSPORTS = {
  stdio: "",
  streamable_http: "over streamable HTTP",
  http_sse_legacy: "over HTTP+SSE (deprecated)",
} as const;

/** One line that says what the field holds. */
export function Recognised({ adding }: { readonly adding: Adding }) {
  const { pasted, read, draft } = adding;
  if (pasted.kind === "nothing" || pasted.kind === "unclear") return <div />;
  const number = read.found?.servers.length ?? 0;
  const isOfficial = pasted.kind === "file" && /"(?:packages|remotes)"\s*:/.test(pasted.text);
  return (
    <Group
      gap="xs"
      role="status"
      aria-label="Recognized"
      wrap="nowrap"
      align="flex-start"
      style={{ flex: 1 }}
    >
      <Badge variant="light" style={{ flex: "none" }}>
        {isOfficial ? "server.json" : KINDS[pasted.kind]}
      </Badge>
      {read.isReading ? <Text size="sm">Reading…</Text> : null}
      {draft === null ? null : <Summary body={draft.body} />}
      {draft === null && number > 0 ? <Text size="sm">{number} servers: choose below.</Text> : null}
    </Group>
  );
}

function Summary({ body }: { readonly body: Body }) {
  const { stdio, http, transport } = body;
  return (
    <Text size="sm" component="div">
      {stdio ? (
        <>
          The gateway starts <Untrusted text={shellLine({ ...stdio, env: {} })} mono />
        </>
      ) : null}
      {http ? (
        <>
          The gateway connects to <Untrusted text={http.url} mono /> {TRANSPORTS[transport]}
        </>
      ) : null}
    </Text>
  );
}

export function AddFields({ adding }: { readonly adding: Adding }) {
  const { id, setId, problem, blanks, answers, answer, renamedFrom } = adding;
  return (
    <Stack>
      <div style={{ maxWidth: 420 }}>
        <TextField
          label="ID"
          about="Part of URLs, rules and tool names. It cannot be changed later."
          value={id}
          onChange={setId}
          problem={problem === "" ? undefined : problem}
          isMono
          isNeeded
        />
        {renamedFrom === "" ? null : (
          <Text size="sm" c="dimmed" mt={4} component="div">
            <Untrusted text={renamedFrom} mono /> exists: this adds a second server and changes nothing of the
            first.
          </Text>
        )}
      </div>
      {blanks.length === 0 ? null : <Blanks blanks={blanks} answers={answers} onAnswer={answer} />}
    </Stack>
  );
}

interface BlanksProps {
  readonly blanks: readonly Blank[];
  readonly answers: Answers;
  readonly onAnswer: (key: string, answer: Answers[string]) => void;
}

function Blanks({ blanks, answers, onAnswer }: BlanksProps) {
  const missing = blanks.filter((one) => !isAnswered(one, answers)).length;
  return (
    <Stack gap="sm" role="group" aria-label="Variables and secrets">
      <Group gap={4}>
        <Text fw={600}>Variables and secrets</Text>
        <Help of="server.stdio.env" label="Variables" />
        {missing > 0 ? <Badge color="orange">{missing} missing</Badge> : null}
      </Group>
      {blanks.map((one) => (
        <BlankField
          key={one.key}
          blank={one}
          answer={answerOf(one, answers)}
          onAnswer={(answer) => onAnswer(one.key, answer)}
        />
      ))}
      {blanks.some((one) => one.was === "secret" && !answerOf(one, answers).isFromGateway) ? (
        <Alert color="yellow">
          The record stores a secret that is written out. With <i>Gateway's variable</i> it stores the name
          only, and the value stays in the environment of the gateway.
        </Alert>
      ) : null}
    </Stack>
  );
}

interface BlankFieldProps {
  readonly blank: Blank;
  readonly answer: Answers[string];
  readonly onAnswer: (answer: Answers[string]) => void;
}

function BlankField({ blank, answer, onAnswer }: BlankFieldProps) {
  const { isFromGateway, value, variable } = answer;
  const label = visibleText(blank.label);
  const ValueInput = blank.isSecret ? PasswordInput : TextInput;
  return (
    <Group align="flex-end" gap="xs">
      {isFromGateway ? (
        <TextInput
          label={label}
          description="Name of the variable in the gateway's environment"
          value={variable}
          onChange={(event) => onAnswer({ ...answer, variable: event.currentTarget.value })}
          classNames={{ input: "mono" }}
          style={{ flex: "1 1 240px" }}
          autoComplete="off"
          spellCheck={false}
        />
      ) : (
        <ValueInput
          label={label}
          description={blank.was === "secret" ? "A secret, as pasted" : "Value"}
          value={value}
          onChange={(event) => onAnswer({ ...answer, value: event.currentTarget.value })}
          classNames={{ input: "mono" }}
          style={{ flex: "1 1 240px" }}
          autoComplete="off"
          spellCheck={false}
        />
      )}
      <SegmentedControl
        aria-label={`Where ${label} comes from`}
        value={isFromGateway ? "gateway" : "value"}
        onChange={(chosen) => onAnswer({ ...answer, isFromGateway: chosen === "gateway" })}
        data={[
          { value: "value", label: "Value" },
          { value: "gateway", label: "Gateway's variable" },
        ]}
        transitionDuration={0}
      />
    </Group>
  );
}
