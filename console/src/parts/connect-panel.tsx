/** The settings to paste into each client. */
import { Alert, Button, Chip, Code, Group, Stack, Text } from "@mantine/core";
import { IconExternalLink } from "@tabler/icons-react";
import { queryOptions, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Shapes, take } from "@/api/client";
import { type Client, installLink } from "./client-setup";
import { CodeBlock } from "./copy";
import { Prose } from "./prose";
import { Loaded } from "./states";

interface ConnectPanelProps {
  readonly task?: string;
  readonly servers?: string;
  readonly tools?: string;
  readonly profile?: string;
  /** Whether the client sends a key. Without it: if the caller does, or off loopback. */
  readonly needs_key?: boolean;
  /** Whose paths of files; Linux by default. */
  readonly platform?: "linux" | "darwin";
}

export function connectQuery(query: ConnectPanelProps) {
  return queryOptions({
    queryKey: ["derived", "connect", query],
    queryFn: ({ signal }) => take(api.GET("/api/v1/mcp/connect", { params: { query }, signal })),
  });
}

export function ConnectPanel(query: ConnectPanelProps) {
  const answer = useQuery(connectQuery(query));
  return <Loaded query={answer}>{(found) => <Clients found={found} />}</Loaded>;
}

function Clients({ found }: { readonly found: Shapes["ConnectResponse"] }) {
  const [chosen, setChosen] = useState<string | null>(null);
  const client = found.clients.find((one) => one.id === chosen) ?? found.clients[0];
  return (
    <Stack gap="md">
      <CodeBlock text={found.url} label="URL" />
      {found.note ? (
        <Text size="sm" component="div">
          <Prose text={found.note} />
        </Text>
      ) : null}
      {found.warnings.map((one) => (
        <Alert key={one} color="yellow">
          <Prose text={one} />
        </Alert>
      ))}
      <ClientChoice clients={found.clients} value={client?.id ?? ""} onChange={setChosen} />
      {client ? <ClientSetup client={client} /> : null}
    </Stack>
  );
}

interface ClientChoiceProps {
  readonly clients: readonly Client[];
  readonly value: string;
  readonly onChange: (id: string) => void;
}

export function ClientChoice({ clients, value, onChange }: ClientChoiceProps) {
  return (
    <Group gap={6} role="radiogroup" aria-label="Client">
      <Chip.Group value={value} onChange={onChange}>
        {clients.map((one) => (
          <Chip key={one.id} value={one.id} size="sm" radius="md" variant="light">
            {one.title}
          </Chip>
        ))}
      </Chip.Group>
    </Group>
  );
}

/** The document of a client, as one pastes it. */
export function documentText(client: Client): string {
  return JSON.stringify(client.document, null, 2);
}

/** What to do next in the client, as a sentence. */
export function afterWords({ after }: Client): string {
  return `${after.charAt(0).toUpperCase()}${after.slice(1)}.`;
}

function ClientSetup({ client }: { readonly client: Client }) {
  const link = installLink(client);
  const document = documentText(client);
  const needsVariable = document.includes("TOOLGATE_KEY}");
  const needsPaste = document.includes("<your key>");
  return (
    <Stack gap="sm">
      {needsVariable ? (
        <Text size="sm">
          The client reads the key from the environment variable <Code>TOOLGATE_KEY</Code>: set it where the
          client starts.
        </Text>
      ) : null}
      {needsPaste ? (
        <Text size="sm">
          Replace <Code>{"<your key>"}</Code> with the key.
        </Text>
      ) : null}
      {link ? (
        <Group gap="xs">
          {/* The scheme is ours; only the query has what others wrote, encoded. */}
          <Button
            component="a"
            href={link.url}
            variant="default"
            leftSection={<IconExternalLink size={16} aria-hidden />}
          >
            {link.title}
          </Button>
        </Group>
      ) : null}
      {client.command ? (
        <>
          <Text size="sm">{link ? "Or run this:" : "Run this:"}</Text>
          <CodeBlock text={client.command} label="command" />
        </>
      ) : null}
      <Text size="sm">
        {link || client.command ? "Or paste this into " : "Paste this into "}
        {client.file === null ? "its settings" : <Code>{client.file}</Code>}:
      </Text>
      <CodeBlock text={document} label="configuration" />
      <Text size="sm" component="div">
        <Prose text={afterWords(client)} />
      </Text>
    </Stack>
  );
}
