/** One tool in a list: name, description, tokens, and whether it is picked. */
import { Anchor, Badge, Group, Paper, Stack, Text } from "@mantine/core";
import { Link } from "react-router";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { packagePath, toolPath } from "./paths";
import { PickBox } from "./pick-box";
import type { Tool } from "./queries";

interface ToolRowProps {
  readonly tool: Tool;
  /** Where it is, in a list of several. */
  readonly server?: { readonly id: string; readonly name: string };
}

/** What is shown of a description in a list. */
const ABOUT_CHARS = 400;

export function ToolRow({ tool, server }: ToolRowProps) {
  if (tool.name === "*") return <UnknownTools tool={tool} />;
  return (
    <Paper withBorder p="xs" component="article" aria-label={visibleText(tool.fullName)}>
      <Group wrap="nowrap" align="flex-start" gap="sm">
        <PickBox tool={tool} />
        <Stack gap={2} style={{ flex: 1, minWidth: 0 }}>
          <Group gap="xs">
            <Anchor component={Link} to={toolPath(tool.fullName)} fw={600}>
              <Untrusted text={tool.name} mono />
            </Anchor>
            {tool.title ? (
              <Text span size="sm">
                <Untrusted text={tool.title} />
              </Text>
            ) : null}
            {tool.readOnly ? (
              <Badge variant="light" color="green" tt="none">
                read-only
              </Badge>
            ) : tool.annotations?.destructiveHint === true ? (
              <Badge variant="light" color="red" tt="none">
                destructive
              </Badge>
            ) : null}
          </Group>
          <Text size="sm" lineClamp={2} component="div">
            <Untrusted text={tool.description.slice(0, ABOUT_CHARS)} />
          </Text>
          {server ? (
            <Text size="xs" component="div">
              <Anchor component={Link} to={packagePath(server.id)} inherit>
                <Untrusted text={server.name} />
              </Anchor>
            </Text>
          ) : null}
        </Stack>
        <Text size="sm" c="dimmed" style={{ whiteSpace: "nowrap" }}>
          {count(tool.tokens)} tokens
        </Text>
      </Group>
    </Paper>
  );
}

function UnknownTools({ tool }: { readonly tool: Tool }) {
  return (
    <Paper withBorder p="xs" component="article" aria-label={visibleText(tool.fullName)}>
      <Text size="sm" c="dimmed" component="div">
        The tools of <Untrusted text={tool.fullName.replace(/\.\*$/, "")} mono /> are unknown until its server
        lists them.
      </Text>
    </Paper>
  );
}
