/** A new server in one field: paste it, test it, tick what is offered, save. */
import { Alert, Anchor, Button, Card, Group, List, Stack, Text, Textarea, Title } from "@mantine/core";
import { IconPlugConnected } from "@tabler/icons-react";
import { type KeyboardEvent, useState } from "react";
import { LeaveGuard } from "@/parts/leave-guard";
import { Prose } from "@/parts/prose";
import { Failure } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { AddFields, Recognised } from "./add-fields";
import { FilePicker, useDropped } from "./file-picker";
import { ImportReview } from "./import-review";
import { Review } from "./review";
import { ToolTicks } from "./tool-ticks";
import { Rejected, TrialProgress, TrialResult, TrialTimes } from "./trial";
import { type Adding, useAdd } from "./use-add";

interface AddServerProps {
  readonly onSaved: (serverId: string) => void;
  /** To the form of every field, with what is known so far. */
  readonly onAllSettings: (body: Adding["body"]) => void;
}

export function AddServer({ onSaved, onAllSettings }: AddServerProps) {
  const adding = useAdd();
  const [imported, setImported] = useState("");
  const { draft, read, reviewed } = adding;
  const many = draft === null && read.found !== null;
  return (
    <Stack>
      <form
        aria-label="New server"
        onSubmit={(event) => {
          event.preventDefault();
          adding.test();
        }}
      >
        <Card withBorder>
          <Stack>
            <PasteField adding={adding} />
            {draft === null ? null : <AddFields adding={adding} />}
            {many ? null : (
              <Group justify="space-between">
                <Anchor component="button" type="button" size="sm" onClick={() => onAllSettings(adding.body)}>
                  All settings
                </Anchor>
                <Button
                  type="submit"
                  variant={adding.isTested ? "default" : "filled"}
                  leftSection={<IconPlugConnected size={16} />}
                  disabled={!adding.isComplete || adding.trial.isPending}
                >
                  {adding.isTested ? "Test again" : "Test"}
                </Button>
              </Group>
            )}
          </Stack>
        </Card>
      </form>
      {many ? (
        <ImportReview content={read.text} format="auto" onDone={() => setImported(adding.text)} />
      ) : null}
      <Tested adding={adding} />
      <LeaveGuard isDirty={adding.text.trim() !== "" && adding.text !== imported} />
      <Review
        change={reviewed}
        etag={null}
        offered={adding.isTested ? adding.choice.ticked.size : undefined}
        onClose={adding.closeReview}
        onSaved={onSaved}
      />
    </Stack>
  );
}

const EXAMPLES = "npx -y @modelcontextprotocol/server-everything";

function PasteField({ adding }: { readonly adding: Adding }) {
  const { text, setText, pasted, read } = adding;
  const [isFocused] = useState(true);
  const dropping = useDropped(setText);
  const isLine = pasted.kind === "command" || pasted.kind === "url";
  const onKey = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    const isSubmit = event.key === "Enter" && !event.shiftKey && (isLine || event.ctrlKey || event.metaKey);
    if (!isSubmit || event.nativeEvent.isComposing) return;
    event.preventDefault();
    adding.test();
  };
  return (
    <>
      <Textarea
        label="Command, URL or configuration"
        description="As a README has it: a command, the URL of an endpoint, an mcp.json of any client, or a server.json. Nothing starts until you test it."
        placeholder={EXAMPLES}
        value={text}
        onChange={(event) => setText(event.currentTarget.value)}
        onKeyDown={onKey}
        onDrop={dropping.onDrop}
        onDragOver={(event) => event.preventDefault()}
        error={dropping.problem ?? (pasted.kind === "unclear" ? pasted.problem : undefined)}
        autosize
        minRows={2}
        maxRows={16}
        classNames={{ input: "mono" }}
        spellCheck={false}
        autoComplete="off"
        autoFocus={isFocused}
      />
      <Group justify="space-between" wrap="wrap-reverse">
        <Recognised adding={adding} />
        {text === "" ? <FilePicker onText={setText} /> : null}
      </Group>
      {read.error ? <Failure error={read.error} /> : null}
      {adding.draft !== null ? <Notes warnings={read.found?.warnings ?? []} /> : null}
    </>
  );
}

/** What the import says and the page does not: it asks for tools and for variables itself. */
const OWN = /^no tools are allowed of |where the gateway runs: /;

function Notes({ warnings }: { readonly warnings: readonly string[] }) {
  const shown = warnings.filter((one) => !OWN.test(one));
  if (shown.length === 0) return null;
  return (
    <List size="sm">
      {shown.map((one) => (
        <List.Item key={one}>
          <Prose text={one} />
        </List.Item>
      ))}
    </List>
  );
}

/** The test, and then the tools to tick. */
function Tested({ adding }: { readonly adding: Adding }) {
  const { trial, isTested, choice, body } = adding;
  const answer = trial.isPending ? undefined : trial.data;
  return (
    <>
      <div role="status" aria-label="Result of the test">
        {trial.isPending ? (
          <Card withBorder>
            <TrialProgress body={body} onCancel={trial.cancel} />
          </Card>
        ) : null}
        {answer && !answer.ok ? <TrialResult answer={answer} /> : null}
        {answer?.ok && !isTested ? (
          <Alert color="yellow">The input changed since the test. Test it again.</Alert>
        ) : null}
        {answer && isTested ? (
          <Text size="sm">
            Works: <TrialTimes answer={answer} />.
          </Text>
        ) : null}
      </div>
      {trial.isError ? <Failure error={trial.error} /> : null}
      {answer && isTested ? (
        <Card withBorder component="section" aria-label="Tools found">
          <Stack>
            <Title order={2} size="h4">
              What <Untrusted text={adding.id} /> offers
            </Title>
            {choice.tools.length === 0 ? (
              <Text>It lists no tools.</Text>
            ) : (
              <ToolTicks tools={choice.tools} ticked={choice.ticked} onTick={adding.setTicks} />
            )}
            <Rejected answer={answer} />
          </Stack>
        </Card>
      ) : null}
      <Actions adding={adding} />
    </>
  );
}

/** A server that answers like this most likely requires a login. */
const WANTS_LOGIN = /\b401\b|unauthori[sz]ed|requires? (?:a )?log[- ]?in/i;

function Actions({ adding }: { readonly adding: Adding }) {
  const { trial, isTested, isComplete } = adding;
  const hasFailed = !trial.isPending && (trial.isError || trial.data?.ok === false);
  const wantsLogin = hasFailed && Boolean(adding.body?.http) && WANTS_LOGIN.test(trial.data?.error ?? "");
  if (!isComplete || !(isTested || hasFailed)) return null;
  return (
    <Group justify="flex-end">
      {wantsLogin ? <Button onClick={() => adding.review(true)}>Save, and log in with OAuth</Button> : null}
      {isTested ? (
        <Button onClick={() => adding.review()}>Review and save</Button>
      ) : (
        <Button variant="default" onClick={() => adding.review()}>
          Save without a successful test
        </Button>
      )}
    </Group>
  );
}
