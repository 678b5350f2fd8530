/** One card of the overview. */
import { Card, Group, Title } from "@mantine/core";
import type { ReactNode } from "react";

interface PanelProps {
  readonly title: string;
  /** For who is led to it. */
  readonly id?: string;
  /** To the right of the title. */
  readonly aside?: ReactNode;
  readonly children: ReactNode;
}

export function Panel({ title, id, aside, children }: PanelProps) {
  return (
    <Card withBorder component="section" aria-label={title} id={id}>
      <Group justify="space-between" mb="sm">
        <Title order={2} size="h4">
          {title}
        </Title>
        {aside}
      </Group>
      {children}
    </Card>
  );
}
