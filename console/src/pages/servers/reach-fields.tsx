/** The connection of a server: its command, or its URL and authentication. */
import { Anchor, SegmentedControl, Select, SimpleGrid, Stack, Switch, Text } from "@mantine/core";
import { CodeBlock } from "@/parts/copy";
import { Untrusted } from "@/parts/untrusted";
import { ListField, labelOf, PairsField, TextField, told, WordsField } from "./fields";
import type { FormProps } from "./form-fields";
import { toBody } from "./server-form";
import { shellLine, splitLine } from "./shell-line";

const REFERENCES = "Values may reference environment variables of the node, such as $" + "{ENV:NAME}.";

/** A whole command line was typed as the command: one click splits it. */
function SplitHint({ form, set }: Pick<FormProps, "form" | "set">) {
  const words = /\s/.test(form.command.trim()) ? splitLine(form.command) : null;
  const [command, ...args] = words ?? [];
  if (command === undefined || args.length === 0) return null;
  return (
    <Text size="xs">
      Toolgate uses no shell and treats this as one program name.{" "}
      <Anchor
        component="button"
        type="button"
        size="xs"
        onClick={() => set({ command, args: [...args, ...form.args] })}
      >
        Split into command and arguments
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
          help="stdio.command"
          about="The program to run, from the node's PATH."
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
        help="stdio.args"
        about={`Passed literally, one per line. ${REFERENCES}`}
        one="argument"
        value={form.args}
        onChange={(args) => set({ args })}
        problem={problem("stdio.args")}
      />
      <PairsField
        label="Environment variables"
        help="stdio.env"
        about={`Set for the program. ${REFERENCES}`}
        one="variable"
        first=""
        value={form.env}
        onChange={(env) => set({ env })}
        problem={problem("stdio.env")}
        problemOf={(place) => problem(`stdio.env[${place}]`)}
      />
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <WordsField
          label="Inherited environment variables"
          help="stdio.env_from"
          about="Names of the node's variables to pass on."
          value={form.env_from}
          onChange={(env_from) => set({ env_from })}
          problem={problem("stdio.env_from")}
          placeholder="Type a name, press Enter"
        />
        <TextField
          label="Working directory"
          help="stdio.cwd"
          value={form.cwd}
          onChange={(cwd) => set({ cwd })}
          problem={problem("stdio.cwd")}
          about="Default: the node's."
          isMono
        />
      </SimpleGrid>
      {form.package ? (
        <Text size="sm">
          Runs from its package, version <Untrusted text={form.package.version} mono />.
        </Text>
      ) : null}
      {line && line.command !== "" ? (
        <div>
          <Text size="sm" fw={500} mb={4}>
            Command line
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
        help="http.url"
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
        help="http.headers"
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
          Authentication
        </Text>
        <SegmentedControl
          transitionDuration={0}
          aria-label="Authentication"
          value={form.authentication}
          data={[
            { value: "none", label: "None or header" },
            { value: "secret", label: "Bearer token" },
            { value: "oauth", label: "OAuth" },
          ]}
          onChange={(authentication) => set({ authentication })}
        />
      </div>
      {form.authentication === "secret" ? (
        <TextField
          label="Secret name"
          help="http.auth_ref"
          about="The node resolves the secret and sends it as a bearer token. Do not enter the secret itself."
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
        label={labelOf("Grant", "http.oauth.grant")}
        aria-label="Grant"
        value={form.grant}
        data={[
          { value: "authorization_code", label: "Authorization code: a user logs in" },
          { value: "client_credentials", label: "Client credentials: no user" },
        ]}
        allowDeselect={false}
        onChange={(grant) =>
          set({ grant: grant === "client_credentials" ? "client_credentials" : "authorization_code" })
        }
        error={told(problem("http.oauth"))}
      />
      <SimpleGrid cols={{ base: 1, sm: 2 }}>
        <TextField
          label="Client ID"
          help="http.oauth.client_id"
          about="The gateway's ID at the authorization server."
          value={form.client_id}
          onChange={(client_id) => set({ client_id })}
          isMono
        />
        <TextField
          label="Client secret name"
          help="http.oauth.client_secret_ref"
          about="The node resolves it. Do not enter the secret itself."
          value={form.client_secret_ref}
          onChange={(client_secret_ref) => set({ client_secret_ref })}
          isMono
        />
        <TextField
          label="Issuer"
          help="http.oauth.issuer"
          about="The authorization server's issuer, as in its metadata. Required with a client secret."
          value={form.issuer}
          onChange={(issuer) => set({ issuer })}
          isMono
        />
        <WordsField
          label="Scopes"
          help="http.oauth.scopes"
          about="Scopes to request. Empty: the server's default."
          value={form.scopes}
          onChange={(scopes) => set({ scopes })}
        />
      </SimpleGrid>
      <Switch
        label={labelOf("Separate login per principal", "http.oauth.per_principal")}
        aria-label="Separate login per principal"
        checked={form.per_principal}
        onChange={(event) => set({ per_principal: event.currentTarget.checked })}
      />
    </Stack>
  );
}
