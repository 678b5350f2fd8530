/** An empty installation: what to do first. */
import { Anchor, List, Text } from "@mantine/core";
import { Link } from "react-router";
import { CodeBlock } from "@/parts/copy";
import { Panel } from "./panel";

export function FirstSteps() {
  return (
    <Panel title="First steps">
      <List type="ordered" spacing="md">
        <List.Item>
          <Anchor component={Link} to="/servers/-/new">
            Add a server
          </Anchor>
          , or{" "}
          <Anchor component={Link} to="/servers/-/import">
            import
          </Anchor>{" "}
          the servers that Claude, Cursor or VS Code already use.
        </List.Item>
        <List.Item>
          <Anchor component={Link} to="/tasks/-/new">
            Create a task
          </Anchor>{" "}
          with only the tools it needs.
        </List.Item>
        <List.Item>
          <Anchor component={Link} to="/keys/-/new">
            Create a key
          </Anchor>{" "}
          for each client on another machine.
        </List.Item>
        <List.Item>
          <Text mb={4}>Connect a client:</Text>
          <CodeBlock label="command" text={`toolgate connect claude-code --url ${window.location.origin}`} />
        </List.Item>
      </List>
    </Panel>
  );
}
