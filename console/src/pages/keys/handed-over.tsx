/** The end of a hand-over: everything to send, as one text. The key is shown here once. */
import { Alert, Button, Card, CopyButton, Group, Stack, Switch, Text, Title } from "@mantine/core";
import { IconCheck, IconCopy } from "@tabler/icons-react";
import { type ReactNode, useEffect, useState } from "react";
import type { Shapes } from "@/api/client";
import { isOnlyHere, withKey } from "@/parts/client-setup";
import { ClientChoice } from "@/parts/connect-panel";
import { CodeBlock } from "@/parts/copy";
import { LeaveGuard } from "@/parts/leave-guard";
import { Warnings } from "@/parts/plan-panel";
import { OnlyHere } from "./hand-over-effect";
import { handOverText } from "./hand-over-text";

interface HandedOverProps {
  readonly made: Shapes["KeyMade"];
  readonly who: string;
  readonly found: Shapes["ConnectResponse"];
  readonly clientId: string;
  readonly tools: number;
  /** Below the console. */
  readonly keyPath: string;
  readonly onDone: (to: string) => void;
  readonly children: ReactNode;
}

export function HandedOver({
  made,
  who,
  found,
  clientId,
  tools,
  keyPath,
  onDone,
  children,
}: HandedOverProps) {
  const [isWithKey, setWithKey] = useState(true);
  const [chosen, setChosen] = useState(clientId);
  const client = found.clients.find((one) => one.id === chosen) ?? found.clients[0];
  // The button that leads here is at the foot of a long form.
  useEffect(() => {
    window.scrollTo(0, 0);
  }, []);
  if (client === undefined) return null;
  const text = handOverText({
    who,
    keyId: made.key_id,
    task: made.default_task ?? "",
    tools,
    url: found.url,
    secret: isWithKey ? made.secret : null,
    expiresAtS: made.expires_at_s ?? null,
    client: isWithKey ? withKey(client, made.secret) : client,
    keyPage: `${window.location.origin}/console${keyPath}`,
  });
  return (
    <Stack gap="md" maw={900}>
      <LeaveGuard isDirty question="Is the text sent?" about="The key cannot be shown again." />
      {children}
      {isOnlyHere(found.url) ? <OnlyHere url={found.url} /> : null}
      <Warnings warnings={made.warnings} />
      <Card withBorder component="section" aria-label="To send">
        <Stack gap="sm">
          <Title order={2} size="h4">
            Send this to {who}
          </Title>
          <ClientChoice clients={found.clients} value={client.id} onChange={setChosen} />
          <Switch
            label="The key is in the text"
            description="Off: send the key another way, such as through a password manager."
            checked={isWithKey}
            onChange={(event) => setWithKey(event.currentTarget.checked)}
          />
          <CodeBlock text={text} label="text to send" isWhole />
          {isWithKey ? null : <CodeBlock text={made.secret} label="key" />}
          <Alert color="yellow" title="The key is shown once">
            <Text size="sm">The gateway keeps only its hash. Copy it before you leave this page.</Text>
          </Alert>
          <Group>
            <CopyAll text={text} />
            <Button variant="default" onClick={() => onDone(keyPath)}>
              Done
            </Button>
          </Group>
        </Stack>
      </Card>
    </Stack>
  );
}

function CopyAll({ text }: { readonly text: string }) {
  return (
    <CopyButton value={text}>
      {({ copied, copy }) => (
        <Button onClick={copy} leftSection={copied ? <IconCheck size={16} /> : <IconCopy size={16} />}>
          {copied ? "Copied" : "Copy everything"}
        </Button>
      )}
    </CopyButton>
  );
}
