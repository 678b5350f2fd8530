/** How many of all tools something offers: red if none, with the reason and what to do about it. */
import { Alert, Anchor, Button, Group, Text } from "@mantine/core";
import { Link } from "react-router";
import { Prose } from "./prose";
import { count } from "./time";

/** Why nothing is offered, and the page on which that can be changed. */
export interface WhyNothing {
  readonly reason: string;
  readonly todo: { readonly title: string; readonly path: string };
}

interface OfferedProps {
  readonly tools: number;
  readonly of: number;
  /** Shown if it offers no tool. */
  readonly why?: WhyNothing | null;
}

/** For a row of a list. */
export function Offered({ tools, of, why }: OfferedProps) {
  if (tools > 0) return `${count(tools)} of ${count(of)}`;
  return (
    <>
      <Text span size="sm" fw={700} c="var(--tone-bad)">
        0 of {count(of)}
      </Text>
      {why ? (
        <Text size="xs" component="div">
          <Prose text={why.reason} />{" "}
          <Anchor component={Link} to={why.todo.path}>
            {why.todo.title}
          </Anchor>
        </Text>
      ) : null}
    </>
  );
}

/** For a page. */
export function NothingOffered({ why }: { readonly why: WhyNothing }) {
  return (
    <Alert color="red" title="No tools offered">
      <Group justify="space-between" gap="sm">
        <Text size="sm" component="div" style={{ flex: "1 1 240px" }}>
          <Prose text={why.reason} />
        </Text>
        <Button component={Link} to={why.todo.path} size="xs" variant="default">
          {why.todo.title}
        </Button>
      </Group>
    </Alert>
  );
}
