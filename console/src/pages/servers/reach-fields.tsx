/** How a server is reached: the program that is started, or the URL that is called, and by which proof. */
import { Anchor, SegmentedControl, Select, SimpleGrid, Stack, Switch, Text } from "@mantine/core";
import { CodeBlock } from "@/parts/copy";
import { Untrusted } from "@/parts/untrusted";
import { ListField, PairsField, TextField, told, WordsField } from "./fields";
import type { FormProps } from "./form-fields";
import { toBody } from "./server-form";
import { shellLine, splitLine } from "./shell-line";

const REFERENCES = "Values may hold references to variables of the node, such as $" + "{ENV:NAME}.";

/** A whole line was typed where a program's name belongs: it is one click to make it that. */
function SplitHint({ form, set }: Pick<FormProps, "form" | "set">) {
  const words = /\s/.test(form.command.trim()) ? splitLine(form.command) : null;
  const [command, ...args] = words ?? [];
  if (command === undefined || args.length === 0) return null;
  return (
    <Text size="xs">
      No shell is involved, so this is looked for as one program.{" "}
      <Anchor
        component="button"
        type="button"
        size="xs"
        onClick={() => set({ command, args: [...args, ...form.args] })}
      >
        Make it a program and its arguments
      </Anchor>
    </Text>
  );
}

export function LaunchFields({ form, set, problem }: FormProps) {
  const line = toBody({ ...form, transport: "stdio" }).stdio;
  return (
    <Stack>
      <div>
        <TextField
          label="Command"
          about="The program, found on the node's PATH."
          placeholder="npx"
          value={form.command}
          onChange={(command) => set({ command })}
          problem={problem("stdio.command")}
          isNeeded
          isMono
        />
        <SplitHint form={form} set={set} />
      </div>
      <ListField
        label="Arguments"
        about={`Passed literally, one a line. ${REFERENCES}`}
        one="argument"
        value={form.args}
        onChange={(args) => set({ args })}
        problem={problem("stdio.args")}
      />
      <PairsField
        label="Variables"
        about={`What the program finds in its environment. ${REFERENCES}`}
        one="variable"
        first=""
        value={form.env}
        onChange={(env) => set({ env })}
        problem={problem("stdio.env")}
        problemOf={(place) => problem(`stdio.env[${place}]`)}
      />
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <WordsField
          label="Variables of the node"
          about="Passed on under their own names."
          value={form.env_from}
          onChange={(env_from) => set({ env_from })}
          problem={problem("stdio.env_from")}
          placeholder="Type a name, then Enter"
        />
        <TextField
          label="Working directory"
          value={form.cwd}
          onChange={(cwd) => set({ cwd })}
          problem={problem("stdio.cwd")}
          about="Empty: the node's own."
          isMono
        />
      </SimpleGrid>
      {form.package ? (
        <Text size="sm">
          It runs from its package, version <Untrusted text={form.package.version} mono />.
        </Text>
      ) : null}
      {line && line.command !== "" ? (
        <div>
          <Text size="sm" fw={500} mb={4}>
            So it will be run
          </Text>
          <CodeBlock text={shellLine(line)} label="the command" />
        </div>
      ) : null}
    </Stack>
  );
}

export function EndpointFields(props: FormProps) {
  const { form, set, problem } = props;
  return (
    <Stack>
      <TextField
        label="URL"
        about="The server's MCP endpoint."
        placeholder="https://example.com/mcp"
        value={form.url}
        onChange={(url) => set({ url })}
        problem={problem("http.url")}
        isNeeded
        isMono
      />
      <PairsField
        label="Headers"
        about={`Sent with every request. ${REFERENCES}`}
        one="header"
        first=""
        value={form.headers}
        onChange={(headers) => set({ headers })}
        problem={problem("http.headers")}
        problemOf={(place) => problem(`http.headers[${place}]`)}
      />
      <div>
        <Text size="sm" fw={500} mb={4}>
          Proof of who calls
        </Text>
        <SegmentedControl
          transitionDuration={0}
          aria-label="Proof of who calls"
          value={form.authentication}
          data={[
            { value: "none", label: "None, or by header" },
            { value: "secret", label: "A secret" },
            { value: "oauth", label: "OAuth" },
          ]}
          onChange={(authentication) => set({ authentication })}
        />
      </div>
      {form.authentication === "secret" ? (
        <TextField
          label="Name of the secret"
          about="The node resolves it and sends it as a bearer token. Never the secret itself."
          value={form.auth_ref}
          onChange={(auth_ref) => set({ auth_ref })}
          problem={problem("http.auth_ref")}
          isMono
        />
      ) : null}
      {form.authentication === "oauth" ? <OAuthFields {...props} /> : null}
    </Stack>
  );
}

function OAuthFields({ form, set, problem }: FormProps) {
  return (
    <Stack>
      <Select
        label="Grant"
        value={form.grant}
        data={[
          { value: "authorization_code", label: "Somebody logs in once" },
          { value: "client_credentials", label: "The gateway is itself the client" },
        ]}
        allowDeselect={false}
        onChange={(grant) =>
          set({ grant: grant === "client_credentials" ? "client_credentials" : "authorization_code" })
        }
        error={told(problem("http.oauth"))}
      />
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <TextField
          label="Client id"
          about="As the authorization server knows the gateway."
          value={form.client_id}
          onChange={(client_id) => set({ client_id })}
          isMono
        />
        <TextField
          label="Name of the client's secret"
          about="The node resolves it. Never the secret itself."
          value={form.client_secret_ref}
          onChange={(client_secret_ref) => set({ client_secret_ref })}
          isMono
        />
        <TextField
          label="Issuer"
          about="The authorization server, as its metadata says. Needed with a secret."
          value={form.issuer}
          onChange={(issuer) => set({ issuer })}
          isMono
        />
        <WordsField
          label="Scopes"
          about="What to ask for. None: what it gives by itself."
          value={form.scopes}
          onChange={(scopes) => set({ scopes })}
        />
      </SimpleGrid>
      <Switch
        label="Each principal logs in for itself"
        checked={form.per_principal}
        onChange={(event) => set({ per_principal: event.currentTarget.checked })}
      />
    </Stack>
  );
}
