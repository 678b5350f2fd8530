/** The review before a server is saved: its plan. */
import { Modal } from "@mantine/core";
import { api, take } from "@/api/client";
import { Planned } from "@/parts/planned";
import type { Change } from "@/parts/use-plan";
import { asPlanned } from "@/parts/use-writing";
import type { Body } from "./server-form";

interface ReviewProps {
  /** The body to review; null: closed. */
  readonly change: Change | null;
  /** The ETag that the change is based on; null: the server is new. */
  readonly etag: string | null;
  /** How many tools of a new server are ticked. Undefined: they are not known. */
  readonly offered?: number;
  readonly onClose: () => void;
  readonly onSaved: (serverId: string) => void;
}

export function Review({ change, etag, offered, onClose, onSaved }: ReviewProps) {
  const title = etag === null ? "Add this server" : "Save these changes";
  return (
    <Modal opened={change !== null} onClose={onClose} title={title} size="xl">
      {change ? (
        <Planned
          change={change}
          offered={offered}
          write={(plan) => write(change, etag, plan)}
          onWritten={() => onSaved(change.id)}
          onClose={onClose}
          yes="Save"
          no="Keep editing"
        />
      ) : null}
    </Modal>
  );
}

async function write({ id, body }: Change, etag: string | null, plan: string) {
  const params = { path: { server_id: id }, header: asPlanned(plan, etag ?? "") };
  // The plan has just been made of it, so it is a record.
  return take(api.PUT("/admin/api/mcp/servers/{server_id}", { params, body: body as Body }));
}
