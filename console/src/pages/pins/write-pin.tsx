/** The plan of an approval, then the approval. */
import { Modal } from "@mantine/core";
import { api, type Shapes, take } from "@/api/client";
import { Planned } from "@/parts/planned";
import { asPlanned } from "@/parts/use-writing";
import { visibleText } from "@/parts/visible";

interface WritePinProps {
  readonly title: string;
  readonly serverId: string;
  readonly body: Shapes["PinSent"];
  /** The ETag of the pin that the body is based on; null: a new pin. */
  readonly etag: string | null;
  readonly onClose: () => void;
}

export function WritePin({ title, serverId, body, etag, onClose }: WritePinProps) {
  const write = (plan: string) => {
    const params = { path: { server_id: serverId }, header: asPlanned(plan, etag ?? "") };
    return take(api.PUT("/admin/api/pins/{server_id}", { params, body }));
  };
  return (
    <Modal opened onClose={onClose} title={`${title} ${visibleText(serverId)}`} size="lg">
      <Planned
        change={{ kind: "pin", id: serverId, body }}
        write={write}
        onWritten={onClose}
        onClose={onClose}
        yes={title}
        no="Cancel"
      />
    </Modal>
  );
}
