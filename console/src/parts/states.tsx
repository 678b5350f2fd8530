/** Placeholders for loading, empty and failed content. */
import { Alert, Button, Center, Group, Loader, Stack, Text, Title } from "@mantine/core";
import { IconAlertTriangle, IconInbox } from "@tabler/icons-react";
import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ApiError } from "@/api/client";
import { Untrusted } from "./untrusted";

export function Loading({ what = "Loading" }: { readonly what?: string }) {
  return (
    <Center p="xl" role="status" aria-label={what}>
      <Group gap="sm">
        <Loader size="sm" />
        <Text c="dimmed">{what}…</Text>
      </Group>
    </Center>
  );
}

interface EmptyProps {
  readonly title: string;
  /** What to do so that there is something. */
  readonly children?: ReactNode;
}

export function Empty({ title, children }: EmptyProps) {
  return (
    <Center p="xl">
      <Stack align="center" gap="xs" maw={480} ta="center">
        <IconInbox size={36} stroke={1.2} aria-hidden />
        <Title order={3} size="h4">
          {title}
        </Title>
        <Text c="dimmed" component="div">
          {children}
        </Text>
      </Stack>
    </Center>
  );
}

export function Failure({ error, onRetry }: { readonly error: unknown; readonly onRetry?: () => void }) {
  const known = error instanceof ApiError ? error : null;
  const message = known?.message ?? (error instanceof Error ? error.message : String(error));
  return (
    <Alert color="red" icon={<IconAlertTriangle />} title={<Untrusted text={message} />} role="alert">
      <Stack gap="xs" align="flex-start">
        {known?.hint ? <Untrusted text={known.hint} /> : null}
        {known ? (
          <Text size="sm" c="dimmed">
            Code <span className="mono">{known.code}</span>
          </Text>
        ) : null}
        {onRetry ? (
          <Button size="xs" variant="default" onClick={onRetry}>
            Try again
          </Button>
        ) : null}
      </Stack>
    </Alert>
  );
}

interface LoadedProps<T> {
  readonly query: UseQueryResult<T>;
  readonly what?: string;
  readonly children: (data: T) => ReactNode;
}

/** The result of a query, a loading state, or its error. Old data stays while it is fetched again. */
export function Loaded<T>({ query, what, children }: LoadedProps<T>) {
  if (query.data !== undefined) return children(query.data);
  if (query.isError) return <Failure error={query.error} onRetry={() => void query.refetch()} />;
  return <Loading what={what} />;
}
