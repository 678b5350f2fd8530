/** What a call brought. All of it was written by the server of the tool. */
import { Alert, Anchor, Badge, Group, Paper, Stack, Text, Title } from "@mantine/core";
import { Link } from "react-router";
import { ApiError, type Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { CodeBlock } from "@/parts/copy";
import { Failure } from "@/parts/states";
import { duration } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import styles from "./catalog.module.css";
import { type Content, contentsOf } from "./contents";

export function CallResult({ answer }: { readonly answer: Shapes["CallResponse"] }) {
  const mayRead = useMay("viewer");
  const { shown, left } = contentsOf(answer.result);
  const structured = answer.result.structuredContent;
  return (
    <Stack component="section" aria-label="Result" gap="sm">
      <Group gap="sm">
        <Title order={2} size="h4">
          Result
        </Title>
        <Badge color={answer.is_error ? "red" : "green"} variant="light" tt="none">
          {answer.is_error ? "the tool failed" : "done"}
        </Badge>
        <Text size="sm" c="dimmed">
          {duration(answer.duration_ms)}
        </Text>
        {mayRead ? (
          <Anchor
            component={Link}
            to={`/activity?${new URLSearchParams({ request: answer.request_id })}`}
            size="sm"
          >
            In the audit
          </Anchor>
        ) : null}
      </Group>
      {shown.length === 0 && structured === undefined ? <Text c="dimmed">It answered nothing.</Text> : null}
      {shown.map((one, place) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a result never changes
        <ContentShown key={place} content={one} />
      ))}
      {left > 0 ? <Text size="sm">And {left} more, which are not shown.</Text> : null}
      {structured === undefined ? null : (
        <>
          <Text size="sm" c="dimmed">
            As data:
          </Text>
          <CodeBlock text={JSON.stringify(structured, null, 2)} label="structured content" />
        </>
      )}
    </Stack>
  );
}

function ContentShown({ content }: { readonly content: Content }) {
  switch (content.kind) {
    case "text":
      return <CodeBlock text={content.text} label="text" />;
    case "image":
      return <img src={content.url} alt="From the tool" className={styles.picture} />;
    case "link":
      return (
        <Paper withBorder p="sm">
          <Text size="sm" c="dimmed">
            A resource
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
          <Untrusted text={content.uri} mono />
          <CodeBlock text={content.text} label="resource" />
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

/** A call that was not made, or not finished. One that waits for somebody leads to where that is decided. */
export function CallFailure({ error }: { readonly error: unknown }) {
  const approval =
    error instanceof ApiError && error.code === "mcp_approval_required" ? error.data.approval_id : undefined;
  if (typeof approval !== "string") return <Failure error={error} />;
  return (
    <Alert color="yellow" title="Somebody has to agree to this call first" role="alert">
      <Stack gap="xs" align="flex-start">
        <Text size="sm">
          It waits as{" "}
          <Link to={`/approvals/${encodeURIComponent(approval)}`}>
            approval <Untrusted text={approval} mono />
          </Link>
          . Once it is approved, call again with the same arguments.
        </Text>
      </Stack>
    </Alert>
  );
}
