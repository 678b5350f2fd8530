/** The head of every page: where one is, what it is for, and what one can do. */
import { Group, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import type { ReactNode } from "react";
import { visibleText } from "./visible";

interface PageHeadProps {
  readonly title: string;
  readonly about?: ReactNode;
  /** Buttons, to the right. */
  readonly children?: ReactNode;
}

export function PageHead({ title, about, children }: PageHeadProps) {
  const shown = visibleText(title);
  useDocumentTitle(`${shown} · Toolgate`);
  return (
    <Group justify="space-between" align="flex-start" mb="md" wrap="wrap">
      <Stack gap={2}>
        <Title order={1} size="h2">
          {shown}
        </Title>
        {about ? (
          <Text c="dimmed" component="div">
            {about}
          </Text>
        ) : null}
      </Stack>
      <Group gap="xs">{children}</Group>
    </Group>
  );
}
