/** The settings to paste into each client. */
import { Alert, Code, SegmentedControl, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Shapes, take } from "@/api/client";
import { CodeBlock } from "./copy";
import { Loaded } from "./states";

interface ConnectPanelProps {
  readonly task?: string;
  readonly servers?: string;
  readonly tools?: string;
  readonly profile?: string;
}

export function ConnectPanel(query: ConnectPanelProps) {
  const answer = useQuery({
    queryKey: ["derived", "connect", query],
    queryFn: ({ signal }) => take(api.GET("/api/v1/mcp/connect", { params: { query }, signal })),
  });
  return <Loaded query={answer}>{(found) => <Clients found={found} />}</Loaded>;
}

function Clients({ found }: { readonly found: Shapes["ConnectResponse"] }) {
  const [chosen, setChosen] = useState<string | null>(null);
  const client = found.clients.find((one) => one.id === chosen) ?? found.clients[0];
  return (
    <Stack gap="md">
      <CodeBlock text={found.url} label="URL" />
      {found.note ? <Text size="sm">{found.note}</Text> : null}
      {found.warnings.map((one) => (
        <Alert key={one} color="yellow">
          {one}
        </Alert>
      ))}
      <SegmentedControl
        aria-label="Client"
        value={client?.id ?? ""}
        data={found.clients.map((one) => ({ value: one.id, label: one.title }))}
        onChange={setChosen}
        style={{ flexWrap: "wrap" }}
      />
      {client ? <Client client={client} /> : null}
    </Stack>
  );
}

function Client({ client }: { readonly client: Shapes["AssistantShown"] }) {
  return (
    <Stack gap="sm">
      {client.command ? (
        <>
          <Text size="sm">Run this:</Text>
          <CodeBlock text={client.command} label="command" />
          <Text size="sm">Or add this yourself:</Text>
        </>
      ) : null}
      <Text size="sm">
        Paste this into {client.file === null ? "its settings" : <Code>{client.file}</Code>}:
      </Text>
      <CodeBlock text={JSON.stringify(client.document, null, 2)} label="configuration" />
      <Text size="sm">{client.after}</Text>
    </Stack>
  );
}
