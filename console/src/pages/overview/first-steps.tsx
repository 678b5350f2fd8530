/** An empty installation: what to do first. */
import { Anchor, Button, Group, Stack, Text, ThemeIcon } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { useMay } from "@/api/me";
import { CodeBlock } from "@/parts/copy";
import { Panel } from "./panel";

export function FirstSteps() {
  const isAdmin = useMay("admin");
  return (
    <Panel title="First steps">
      <Stack gap="lg">
        <Step number={1} title="Add a server">
          <Text size="sm" c="dimmed">
            Paste a command, a URL or a configuration. The gateway tests it and lists its tools.
          </Text>
          {isAdmin ? (
            <Group gap="sm">
              <Button component={Link} to="/servers/-/new">
                Add a server
              </Button>
              <Button component={Link} to="/servers/-/import" variant="default">
                Import from Claude, Cursor or VS Code
              </Button>
            </Group>
          ) : (
            <Text size="sm">An admin has to do this: servers run programs.</Text>
          )}
        </Step>
        <Step number={2} title="Give each kind of work its own tools">
          <Text size="sm" c="dimmed">
            A{" "}
            <Anchor component={Link} to="/tasks/-/new">
              task
            </Anchor>{" "}
            is a list of tools with its own URL. What it does not list cannot be called.
          </Text>
        </Step>
        <Step number={3} title="Connect a client">
          <Text size="sm" c="dimmed">
            On this machine, run the command below. For someone else,{" "}
            <Anchor component={Link} to="/keys/-/hand-over">
              hand over access
            </Anchor>
            .
          </Text>
          <CodeBlock label="command" text={`toolgate connect claude-code --url ${window.location.origin}`} />
        </Step>
      </Stack>
    </Panel>
  );
}

interface StepProps {
  readonly number: number;
  readonly title: string;
  readonly children: ReactNode;
}

function Step({ number, title, children }: StepProps) {
  return (
    <Group align="flex-start" wrap="nowrap" gap="md">
      <ThemeIcon radius="xl" size="lg" variant="light" aria-hidden>
        <b>{number}</b>
      </ThemeIcon>
      <Stack gap="xs" style={{ flex: 1, minWidth: 0 }}>
        <Text fw={600}>{title}</Text>
        {children}
      </Stack>
    </Group>
  );
}
