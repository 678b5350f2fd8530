/** The result of a call. All of it was written by the tool's server. */
import { Badge, Button, Card, Group, Paper, Stack, Text, Title } from "@mantine/core";
import { IconDownload } from "@tabler/icons-react";
import { CodeBlock } from "@/parts/copy";
import { saveFile } from "@/parts/save-file";
import type { Json } from "@/parts/schema-form-model";
import { count, duration } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { type Content, contentsOf } from "./contents";
import { JsonView } from "./json-view";
import styles from "./playground.module.css";
import type { Answer } from "./queries";
import { RecordLink } from "./record-link";
import { jsonIn, repeats } from "./tables";

export function CallResult({ answer, tool }: { readonly answer: Answer; readonly tool: string }) {
  const { shown, left } = contentsOf(answer.result);
  const structured = answer.result.structuredContent as Json | undefined;
  const isRepeated = repeats(
    shown.flatMap((one) => (one.kind === "text" ? [one.text] : [])),
    structured,
  );
  const own = isRepeated ? shown.filter((one) => one.kind !== "text") : shown;
  const save = () => saveFile(new Blob([JSON.stringify(answer.result, null, 2)]), `${fileOf(tool)}.json`);
  return (
    <Card withBorder padding="md" component="section" aria-label="Result">
      <Stack gap="sm">
        <Group justify="space-between" gap="sm">
          <Group gap="sm">
            <Title order={2} size="h4">
              Result
            </Title>
            <Badge color={answer.is_error ? "red" : "green"} variant="light">
              {answer.is_error ? "tool error" : "success"}
            </Badge>
            <Text size="sm">{duration(answer.duration_ms)}</Text>
            <Text size="sm" title="An estimate of what a model is charged for this result">
              about {count(answer.tokens)} {answer.tokens === 1 ? "token" : "tokens"}
            </Text>
          </Group>
          <Group gap="sm">
            <RecordLink request={answer.request_id} />
            <Button variant="default" size="xs" leftSection={<IconDownload size={14} />} onClick={save}>
              Save
            </Button>
          </Group>
        </Group>
        {answer.is_error ? (
          <Text size="sm">The tool ran and reports an error. Change the arguments and call it again.</Text>
        ) : null}
        {shown.length === 0 && structured === undefined ? <Text c="dimmed">The result is empty.</Text> : null}
        {own.map((one, place) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: a result never changes
          <ContentShown key={place} content={one} />
        ))}
        {left > 0 ? <Text size="sm">{count(left)} more are not shown.</Text> : null}
        {structured === undefined ? null : (
          <>
            {own.length > 0 ? (
              <Text size="sm" c="dimmed">
                Structured content:
              </Text>
            ) : null}
            <JsonView value={structured} label="structured content" />
          </>
        )}
      </Stack>
    </Card>
  );
}

/** A name that is safe for a file. */
function fileOf(tool: string): string {
  return tool.replaceAll(/[^A-Za-z0-9._-]/g, "_");
}

function ContentShown({ content }: { readonly content: Content }) {
  switch (content.kind) {
    case "text":
      return <TextShown text={content.text} label="text" />;
    case "image":
      return <img src={content.url} alt="From the tool" className={styles.picture} />;
    case "link":
      return (
        <Paper withBorder p="sm">
          <Text size="sm" c="dimmed">
            Link to a resource, not active
          </Text>
          <Untrusted text={content.name} /> <Untrusted text={content.uri} mono />
          <div>
            <Untrusted text={content.description} />
          </div>
        </Paper>
      );
    case "resource":
      return (
        <Stack gap={4}>
          <Text size="sm" component="div">
            <Text span c="dimmed">
              Resource
            </Text>{" "}
            <Untrusted text={content.uri} mono />
          </Text>
          <TextShown text={content.text} label="resource" />
        </Stack>
      );
    case "unshown":
      return (
        <Text size="sm" c="dimmed" component="div">
          Not shown: <Untrusted text={content.says} />
        </Text>
      );
  }
}

/** As it is, unless it is JSON. */
function TextShown({ text, label }: { readonly text: string; readonly label: string }) {
  const value = jsonIn(text);
  return value === undefined ? (
    <CodeBlock text={text} label={label} />
  ) : (
    <JsonView value={value} label={label} />
  );
}
