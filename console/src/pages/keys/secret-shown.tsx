/** Shows a key's secret, once. It closes only when the user confirms that it is stored. */
import { Alert, Button, Group, Modal, Stack, Text } from "@mantine/core";
import type { Shapes } from "@/api/client";
import { CodeBlock } from "@/parts/copy";
import { Warnings } from "@/parts/plan-panel";
import { Untrusted } from "@/parts/untrusted";

interface SecretShownProps {
  readonly made: Shapes["KeyMade"];
  readonly onStored: () => void;
}

export function SecretShown({ made, onStored }: SecretShownProps) {
  return (
    <Modal
      opened
      onClose={onStored}
      title="Store this key now"
      size="lg"
      withCloseButton={false}
      closeOnClickOutside={false}
      closeOnEscape={false}
    >
      <Stack>
        <Alert color="yellow" title="The secret is shown once">
          The gateway keeps only its hash. If it is lost, revoke <Untrusted text={made.key_id} mono /> and
          create another.
        </Alert>
        <CodeBlock text={made.secret} label="key" />
        <Text size="sm" component="div">
          Clients send it as <span className="mono">Authorization: Bearer …</span>. The client settings in the
          catalog read it from the environment variable <span className="mono">TOOLGATE_KEY</span>:
        </Text>
        <CodeBlock text={`export TOOLGATE_KEY=${made.secret}`} label="command" />
        <Warnings warnings={made.warnings} />
        <Group justify="flex-end">
          <Button onClick={onStored}>I have stored the key</Button>
        </Group>
      </Stack>
    </Modal>
  );
}
