/** A tool's definition: description, schemas, annotations and tokens. */
import { Anchor, Badge, Card, Group, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { useMemo, useState } from "react";
import { Link } from "react-router";
import { useMay } from "@/api/me";
import { CodeBlock, Copy } from "@/parts/copy";
import { Fact } from "@/parts/facts";
import { Prose } from "@/parts/prose";
import { fieldOf } from "@/parts/schema-form-model";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { serverOf } from "./paths";
import type { Tool } from "./queries";
import { SchemaTree } from "./schema-tree";

const SOURCES: Readonly<Record<Tool["source"], string>> = {
  manifest: "package manifest",
  discovered: "the server's tool list",
  summary: "package summary (name and description only)",
  legacy: "none: the tool is not known",
};

/** The annotations, and the words for true and false. */
const HINTS: Readonly<Record<string, readonly [string, string]>> = {
  readOnlyHint: ["read-only", "not read-only"],
  destructiveHint: ["destructive", "not destructive"],
  idempotentHint: ["idempotent", "not idempotent"],
  openWorldHint: ["open world", "closed world"],
};

export function Definition({ tool }: { readonly tool: Tool }) {
  return (
    <Stack gap="md" maw={960}>
      <Card withBorder padding="md" component="section" aria-label="About the tool">
        <Stack>
          {tool.description ? (
            <div className="untrusted">
              <Prose text={tool.description} />
            </div>
          ) : (
            <Text c="dimmed">No description.</Text>
          )}
          <Facts tool={tool} />
        </Stack>
      </Card>
      <Schema title="Input schema" schema={tool.inputSchema} label="input schema" />
      {tool.outputSchema ? (
        <Schema title="Output schema" schema={tool.outputSchema} label="output schema" />
      ) : null}
      {tool.annotations ? <Annotations annotations={tool.annotations} /> : null}
    </Stack>
  );
}

function Facts({ tool }: { readonly tool: Tool }) {
  const mayRead = useMay("viewer");
  const server = serverOf(tool.fullName);
  return (
    <SimpleGrid cols={{ base: 1, sm: 2 }} spacing={4} component="dl" m={0}>
      <Fact name="Tokens">about {count(tool.tokens)}</Fact>
      <Fact name="Server">
        {mayRead ? (
          <Anchor component={Link} to={`/servers/${encodeURIComponent(server)}`} inherit>
            <Untrusted text={server} mono />
          </Anchor>
        ) : (
          <Untrusted text={server} mono />
        )}
      </Fact>
      <Fact name="Source">{SOURCES[tool.source]}</Fact>
      <Fact name="Category">
        <Untrusted text={tool.category} />
      </Fact>
      {tool.digest ? (
        <Fact name="Digest">
          <Group gap={4} component="span">
            <span className="mono" title={tool.digest}>
              {tool.digest.slice(0, 16)}…
            </span>
            <Copy text={tool.digest} label="Copy digest" />
          </Group>
        </Fact>
      ) : null}
    </SimpleGrid>
  );
}

interface SchemaProps {
  readonly title: string;
  readonly label: string;
  readonly schema: Readonly<Record<string, unknown>>;
}

function Schema({ title, schema, label }: SchemaProps) {
  const [isJson, setJson] = useState(false);
  const field = useMemo(() => fieldOf(schema), [schema]);
  return (
    <Card withBorder padding="md" component="section" aria-label={title}>
      <Stack gap="xs">
        <Group justify="space-between">
          <Title order={2} size="h4">
            {title}
          </Title>
          <Anchor component="button" type="button" size="sm" onClick={() => setJson(!isJson)}>
            {isJson ? "Show as tree" : "Show as JSON"}
          </Anchor>
        </Group>
        {isJson ? (
          <CodeBlock text={JSON.stringify(schema, null, 2)} label={label} />
        ) : (
          <SchemaTree field={field} />
        )}
      </Stack>
    </Card>
  );
}

function Annotations({ annotations }: { readonly annotations: Readonly<Record<string, unknown>> }) {
  const hints = Object.entries(HINTS).filter(([name]) => typeof annotations[name] === "boolean");
  return (
    <Card withBorder padding="md" component="section" aria-label="Annotations">
      <Stack gap="xs">
        <Title order={2} size="h4">
          Annotations
        </Title>
        <Group gap="xs">
          {hints.map(([name, [yes, no]]) => (
            <Badge key={name} variant="light" color="gray" tt="none">
              {annotations[name] ? yes : no}
            </Badge>
          ))}
        </Group>
        <CodeBlock text={JSON.stringify(annotations, null, 2)} label="annotations" />
        <Text size="sm" c="dimmed">
          The server writes these hints itself. Do not trust them.
        </Text>
      </Stack>
    </Card>
  );
}
