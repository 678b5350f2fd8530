/** The result of a call. All of it was written by the tool's server. */
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
          {answer.is_error ? "tool error" : "success"}
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
            Audit log
          </Anchor>
        ) : null}
      </Group>
      {shown.length === 0 && structured === undefined ? <Text c="dimmed">The result is empty.</Text> : null}
      {shown.map((one, place) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a result never changes
        <ContentShown key={place} content={one} />
      ))}
      {left > 0 ? <Text size="sm">{left} more are not shown.</Text> : null}
      {structured === undefined ? null : (
        <>
          <Text size="sm" c="dimmed">
            Structured content:
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
            Resource link{" "}
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

/** A call that failed. If it is pending approval, it links to the approval. */
export function CallFailure({ error }: { readonly error: unknown }) {
  const approval =
    error instanceof ApiError && error.code === "mcp_approval_required" ? error.data.approval_id : undefined;
  if (typeof approval !== "string") return <Failure error={error} />;
  return (
    <Alert color="yellow" title="This call needs approval" role="alert">
      <Stack gap="xs" align="flex-start">
        <Text size="sm">
          Pending as{" "}
          <Link to={`/approvals/${encodeURIComponent(approval)}`}>
            approval <Untrusted text={approval} mono />
          </Link>
          . Once approved, call again with the same arguments.
        </Text>
      </Stack>
    </Alert>
  );
}
