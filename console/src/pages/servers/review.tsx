/** The last look before a server is saved: what that would change, and for whom. */
import { Modal } from "@mantine/core";
import { api, take } from "@/api/client";
import { Planned } from "@/parts/planned";
import type { Change } from "@/parts/use-plan";
import { asPlanned } from "@/parts/use-writing";
import type { Body } from "./server-form";

interface ReviewProps {
  /** What to look at; null: nothing. */
  readonly change: Change | null;
  /** Of what the change was made from; null: the server is new. */
  readonly etag: string | null;
  readonly onClose: () => void;
  readonly onSaved: (serverId: string) => void;
}

export function Review({ change, etag, onClose, onSaved }: ReviewProps) {
  const title = etag === null ? "Add this server" : "Save these changes";
  return (
    <Modal opened={change !== null} onClose={onClose} title={title} size="xl">
      {change ? (
        <Planned
          change={change}
          write={(plan) => write(change, etag, plan)}
          onWritten={() => onSaved(change.id)}
          onClose={onClose}
          yes="Save"
          no="Go on editing"
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
