/** The history of a record: each change with its diff, and rollback. */
import { Badge, Button, Group, Modal, Text, Timeline } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Shapes, take } from "@/api/client";
import { useMay } from "@/api/me";
import { FieldDiff } from "./diff-view";
import { Planned } from "./planned";
import { Loaded } from "./states";
import { ago, moment } from "./time";
import { Untrusted } from "./untrusted";
import type { Change } from "./use-plan";

interface Past {
  readonly history: () => Promise<Shapes["HistoryResponse"]>;
  readonly rollback: (revision: number, plan: string) => Promise<{ readonly warnings: readonly string[] }>;
}

/** The endpoints of a record's past, by its kind. */
function pastOf(kind: Change["kind"], id: string): Past {
  switch (kind) {
    case "server":
      return {
        history: () =>
          take(
            api.GET("/admin/api/mcp/servers/{server_id}/history", { params: { path: { server_id: id } } }),
          ),
        rollback: (revision, plan) =>
          take(
            api.POST("/admin/api/mcp/servers/{server_id}/rollback", {
              params: { path: { server_id: id }, header: { "Toolgate-Plan": plan } },
              body: { revision },
            }),
          ),
      };
    case "task":
      return {
        history: () =>
          take(api.GET("/admin/api/tasks/{task_id}/history", { params: { path: { task_id: id } } })),
        rollback: (revision, plan) =>
          take(
            api.POST("/admin/api/tasks/{task_id}/rollback", {
              params: { path: { task_id: id }, header: { "Toolgate-Plan": plan } },
              body: { revision },
            }),
          ),
      };
    case "profile":
      return {
        history: () =>
          take(api.GET("/admin/api/profiles/{profile_id}/history", { params: { path: { profile_id: id } } })),
        rollback: (revision, plan) =>
          take(
            api.POST("/admin/api/profiles/{profile_id}/rollback", {
              params: { path: { profile_id: id }, header: { "Toolgate-Plan": plan } },
              body: { revision },
            }),
          ),
      };
    case "chat_upstream":
      return {
        history: () =>
          take(
            api.GET("/admin/api/chat-upstreams/{upstream_id}/history", {
              params: { path: { upstream_id: id } },
            }),
          ),
        rollback: (revision, plan) =>
          take(
            api.POST("/admin/api/chat-upstreams/{upstream_id}/rollback", {
              params: { path: { upstream_id: id }, header: { "Toolgate-Plan": plan } },
              body: { revision },
            }),
          ),
      };
    case "pin":
      return {
        history: () =>
          take(api.GET("/admin/api/pins/{server_id}/history", { params: { path: { server_id: id } } })),
        rollback: (revision, plan) =>
          take(
            api.POST("/admin/api/pins/{server_id}/rollback", {
              params: { path: { server_id: id }, header: { "Toolgate-Plan": plan } },
              body: { revision },
            }),
          ),
      };
  }
}

interface HistoryPanelProps {
  readonly kind: Change["kind"];
  readonly id: string;
  /** The role that may write records of this kind. */
  readonly writer?: "admin" | "publisher";
}

export function HistoryPanel({ kind, id, writer = "admin" }: HistoryPanelProps) {
  const query = useQuery({ queryKey: [kind, id, "history"], queryFn: pastOf(kind, id).history });
  const [back, setBack] = useState<number | null>(null);
  const mayWrite = useMay(writer);
  return (
    <Loaded query={query} what="Loading the history">
      {({ entries }) => (
        <>
          <Entries entries={entries} onBack={mayWrite ? setBack : undefined} />
          <Modal
            opened={back !== null}
            onClose={() => setBack(null)}
            title={`Roll back to revision ${back}`}
            size="lg"
          >
            {back !== null ? (
              <Planned
                change={{ kind, id, revision: back }}
                write={(plan) => pastOf(kind, id).rollback(back, plan)}
                onWritten={() => setBack(null)}
                onClose={() => setBack(null)}
                yes="Roll back"
                no="Cancel"
              />
            ) : null}
          </Modal>
        </>
      )}
    </Loaded>
  );
}

interface EntriesProps {
  readonly entries: readonly Shapes["EntryShown"][];
  /** Called with the revision to roll back to; without it there is no button. */
  readonly onBack?: (revision: number) => void;
}

/** Changes of a record, the newest first. */
export function Entries({ entries, onBack }: EntriesProps) {
  return (
    <Timeline bulletSize={14} lineWidth={2}>
      {entries.map((entry, place) => (
        <Timeline.Item key={entry.revision} title={<EntryTitle entry={entry} />}>
          <FieldDiff fields={entry.fields} />
          {place > 0 && onBack ? (
            <Button size="xs" variant="default" mt="xs" onClick={() => onBack(entry.revision)}>
              {" "}
              Roll back to revision {entry.revision}
            </Button>
          ) : null}
        </Timeline.Item>
      ))}
    </Timeline>
  );
}

function EntryTitle({ entry }: { readonly entry: Shapes["EntryShown"] }) {
  return (
    <Group gap="xs" component="span">
      <Badge variant="light" tt="none" component="span">
        revision {entry.revision}
      </Badge>
      <Text span size="sm">
        {entry.operation} by <Untrusted text={entry.actor} mono />
      </Text>
      <Text span size="sm" c="dimmed" title={moment(entry.at_ms)}>
        {ago(entry.at_ms)}
      </Text>
    </Group>
  );
}
