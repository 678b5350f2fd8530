/** Which tools of a saved server are offered: ticks, then the plan of the record that says so. */
import { Alert, Button, Card, Group, Stack, Text, Title } from "@mantine/core";
import { useState } from "react";
import { LeaveGuard } from "@/parts/leave-guard";
import type { Change } from "@/parts/use-plan";
import { allowedFor, type Choosable, ticksOf } from "./choice";
import type { Preview } from "./offers";
import { Review } from "./review";
import type { Server } from "./server-form";
import { ToolTicks } from "./tool-ticks";

interface ChooseToolsProps {
  readonly server: Server;
  readonly etag: string;
  readonly preview: Preview;
  readonly onClose: () => void;
}

/** Tools with a valid definition: any other is never offered. */
function choosable(preview: Preview): Choosable[] {
  return preview.tools
    .filter((one) => one.reason !== "invalid_definition")
    .map(({ tool, description, tokens, effects }) => ({ name: tool, description, tokens, effects }));
}

function isSame(a: ReadonlySet<string>, b: ReadonlySet<string>): boolean {
  return a.size === b.size && [...a].every((one) => b.has(one));
}

export function ChooseTools({ server, etag, preview, onClose }: ChooseToolsProps) {
  const { server_id } = server;
  const patterns = server.allowed_tools ?? [];
  const tools = choosable(preview);
  const invalid = preview.tools.length - tools.length;
  const saved = ticksOf(patterns, server_id, tools);
  const [ticks, setTicks] = useState<ReadonlySet<string> | null>(null);
  const [reviewed, setReviewed] = useState<Change | null>(null);
  const ticked = ticks ?? saved;
  const allowed_tools = allowedFor(ticked, tools, { serverId: server_id, patterns });
  const dropped = patterns.filter((one) => !allowed_tools.includes(one) && /[*?@]/.test(one));
  const isDirty = !isSame(ticked, saved);
  return (
    <Card withBorder component="section" aria-label="Choose tools">
      <Stack>
        <Title order={2} size="h4">
          Choose tools
        </Title>
        <ToolTicks tools={tools} ticked={ticked} onTick={setTicks} />
        {isDirty && dropped.length > 0 ? (
          <Alert color="blue">
            <span className="mono">{dropped.join(", ")}</span> becomes the names that are ticked: tools that
            the server adds later are not offered until you tick them.
          </Alert>
        ) : null}
        {invalid > 0 ? (
          <Text size="sm">
            {invalid === 1
              ? "1 more tool has an invalid definition"
              : `${invalid} more tools have invalid definitions`}
            : never offered.
          </Text>
        ) : null}
        <Group justify="flex-end">
          <Text size="sm" c="dimmed">
            Pins and tasks may allow less.
          </Text>
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button
            disabled={!isDirty}
            onClick={() => setReviewed({ kind: "server", id: server_id, body: { ...server, allowed_tools } })}
          >
            Review and save
          </Button>
        </Group>
      </Stack>
      <LeaveGuard isDirty={isDirty} />
      <Review change={reviewed} etag={etag} onClose={() => setReviewed(null)} onSaved={onClose} />
    </Card>
  );
}
