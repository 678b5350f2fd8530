/** Placeholders for loading, empty and failed content. */
import { Alert, Button, Center, Group, Skeleton, Stack, Text, Title, VisuallyHidden } from "@mantine/core";
import { IconAlertTriangle } from "@tabler/icons-react";
import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ApiError } from "@/api/client";
import { Prose } from "./prose";

/** The shape of what is loaded, after a moment: what comes at once does not flash. */
export function Skeletons({
  what = "Loading",
  rows = 5,
}: {
  readonly what?: string;
  readonly rows?: number;
}) {
  return (
    <Stack gap="sm" role="status" className="skeletons">
      <VisuallyHidden>{what}…</VisuallyHidden>
      <Skeleton h={28} w="32%" />
      {Array.from({ length: rows }, (_, place) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: they are all alike
        <Skeleton key={place} h={38} />
      ))}
    </Stack>
  );
}

interface EmptyProps {
  readonly title: string;
  /** What to do so that there is something. */
  readonly children?: ReactNode;
  /** The first step: a button or a link. */
  readonly firstStep?: ReactNode;
}

/** A gate with nothing behind it. */
function EmptyPicture() {
  return (
    <svg width="120" height="84" viewBox="0 0 120 84" fill="none" aria-hidden>
      <path
        d="M6 78h108"
        stroke="var(--mantine-color-default-border)"
        strokeWidth="2"
        strokeLinecap="round"
      />
      <path
        d="M36 78V38a20 20 0 0 1 20-20h8a20 20 0 0 1 20 20v40"
        stroke="var(--tone-calm)"
        strokeWidth="4"
        strokeLinecap="round"
      />
      <path
        d="M50 78V44a10 10 0 0 1 20 0v34"
        stroke="var(--mantine-color-default-border)"
        strokeWidth="3"
        strokeDasharray="3 6"
        strokeLinecap="round"
      />
      <circle cx="18" cy="66" r="4" fill="var(--tone-calm)" opacity="0.35" />
      <circle cx="102" cy="58" r="3" fill="var(--tone-calm)" opacity="0.35" />
    </svg>
  );
}

export function Empty({ title, children, firstStep }: EmptyProps) {
  return (
    <Center p="xl">
      <Stack align="center" gap="xs" maw={480} ta="center">
        <EmptyPicture />
        <Title order={2} size="h4">
          {title}
        </Title>
        <Text c="dimmed" component="div">
          {children}
        </Text>
        {firstStep ? <Group gap="xs">{firstStep}</Group> : null}
      </Stack>
    </Center>
  );
}

export function Failure({ error, onRetry }: { readonly error: unknown; readonly onRetry?: () => void }) {
  const known = error instanceof ApiError ? error : null;
  const message = known?.message ?? (error instanceof Error ? error.message : String(error));
  return (
    <Alert color="red" icon={<IconAlertTriangle />} title={<Prose text={message} />} role="alert">
      <Stack gap="xs" align="flex-start">
        {known?.hint ? (
          <div>
            <Prose text={known.hint} />
          </div>
        ) : null}
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
  return <Skeletons what={what} />;
}
