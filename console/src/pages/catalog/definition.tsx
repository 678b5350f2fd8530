/** What a tool says of itself: what it does, what it takes and gives, and what it costs a model to know. */
import { Anchor, Badge, Group, SimpleGrid, Stack, Text, Title } from "@mantine/core";
import { useMemo, useState } from "react";
import { Link } from "react-router";
import { useMay } from "@/api/me";
import { CodeBlock, Copy } from "@/parts/copy";
import { Fact } from "@/parts/facts";
import { fieldOf } from "@/parts/schema-form-model";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { serverOf } from "./paths";
import type { Tool } from "./queries";
import { SchemaTree } from "./schema-tree";

const SOURCES: Readonly<Record<Tool["source"], string>> = {
  manifest: "its package, which declares it",
  discovered: "its server, which lists it",
  summary: "its package, by name and description alone",
  legacy: "nobody: it is not known yet",
};

/** The hints there are, and how each reads when it is given and when it is denied. */
const HINTS: Readonly<Record<string, readonly [string, string]>> = {
  readOnlyHint: ["changes nothing", "may change things"],
  destructiveHint: ["may destroy", "destroys nothing"],
  idempotentHint: ["safe to repeat", "not the same when repeated"],
  openWorldHint: ["reaches outside", "stays inside"],
};

export function Definition({ tool }: { readonly tool: Tool }) {
  return (
    <Stack gap="lg" maw={960}>
      {tool.description ? (
        <div>
          <Untrusted text={tool.description} />
        </div>
      ) : (
        <Text c="dimmed">It does not say what it does.</Text>
      )}
      <Facts tool={tool} />
      <Schema title="What it takes" schema={tool.inputSchema} label="input schema" />
      {tool.outputSchema ? (
        <Schema title="What it gives" schema={tool.outputSchema} label="output schema" />
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
      <Fact name="Known from">{SOURCES[tool.source]}</Fact>
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
    <Stack gap="xs" component="section" aria-label={title}>
      <Group justify="space-between">
        <Title order={2} size="h4">
          {title}
        </Title>
        <Anchor component="button" type="button" size="sm" onClick={() => setJson(!isJson)}>
          {isJson ? "As a tree" : "As JSON"}
        </Anchor>
      </Group>
      {isJson ? (
        <CodeBlock text={JSON.stringify(schema, null, 2)} label={label} />
      ) : (
        <SchemaTree field={field} />
      )}
    </Stack>
  );
}

function Annotations({ annotations }: { readonly annotations: Readonly<Record<string, unknown>> }) {
  const hints = Object.entries(HINTS).filter(([name]) => typeof annotations[name] === "boolean");
  return (
    <Stack gap="xs" component="section" aria-label="What it hints">
      <Title order={2} size="h4">
        What it hints
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
        A server writes these itself. Nothing is allowed because of them.
      </Text>
    </Stack>
  );
}
