/** The pin of one server: changes to review, approved tools, history. */
import { Button, Stack, Tabs, Text } from "@mantine/core";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useParams, useSearchParams } from "react-router";
import { api, take } from "@/api/client";
import { ApiError } from "@/api/error";
import { useMay } from "@/api/me";
import { ConfirmDelete } from "@/parts/confirm-delete";
import { HistoryPanel } from "@/parts/history-panel";
import { PageHead } from "@/parts/page-head";
import { Loaded } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { Differences } from "./differences";
import { FirstPin } from "./first-pin";
import type { Pin } from "./pin-draft";
import { pinQuery } from "./queries";

export function PinPage() {
  const { serverId = "" } = useParams();
  const pin = useQuery(pinQuery(serverId));
  const isUnpinned = pin.error instanceof ApiError && pin.error.status === 404;
  return (
    <>
      <PageHead
        title={serverId}
        about={isUnpinned ? "This server is not pinned." : "The approved tool definitions of this server."}
      >
        <Button component={Link} to={`/servers/${encodeURIComponent(serverId)}`} variant="default">
          Open the server
        </Button>
        {pin.data && !isUnpinned ? <Unpin serverId={serverId} /> : null}
      </PageHead>
      {isUnpinned ? (
        <FirstPin serverId={serverId} />
      ) : (
        <Loaded query={pin} what="Loading the pin">
          {({ record, etag }) => <Parts pin={record} etag={etag} />}
        </Loaded>
      )}
    </>
  );
}

function Parts({ pin, etag }: { readonly pin: Pin; readonly etag: string }) {
  const [query, setQuery] = useSearchParams();
  const names = Object.keys(pin.tools).sort();
  return (
    <Tabs
      value={query.get("tab") ?? "differences"}
      onChange={(tab) => setQuery(tab === null || tab === "differences" ? {} : { tab }, { replace: true })}
      keepMounted={false}
    >
      <Tabs.List mb="md">
        <Tabs.Tab value="differences">To review ({pin.waiting.length})</Tabs.Tab>
        <Tabs.Tab value="approved">Approved ({names.length})</Tabs.Tab>
        <Tabs.Tab value="history">History</Tabs.Tab>
      </Tabs.List>
      <Tabs.Panel value="differences">
        <Differences pin={pin} etag={etag} />
      </Tabs.Panel>
      <Tabs.Panel value="approved">
        <Stack gap={4}>
          {names.map((name) => (
            <Text key={name} component="div" size="sm">
              <Untrusted text={name} mono />{" "}
              <Text span c="dimmed" className="mono" title={pin.tools[name]}>
                {pin.tools[name]?.slice(0, 16)}…
              </Text>
            </Text>
          ))}
          {names.length === 0 ? (
            <Text c="dimmed">No tools are approved, so the server offers none.</Text>
          ) : null}
        </Stack>
      </Tabs.Panel>
      <Tabs.Panel value="history">
        <HistoryPanel kind="pin" id={pin.server_id} />
      </Tabs.Panel>
    </Tabs>
  );
}

function Unpin({ serverId }: { readonly serverId: string }) {
  const [isOpen, setOpen] = useState(false);
  const queries = useQueryClient();
  const navigate = useNavigate();
  if (!useMay("admin")) return null;
  return (
    <>
      <Button color="red" variant="light" onClick={() => setOpen(true)}>
        Unpin
      </Button>
      <ConfirmDelete
        kind="pin"
        id={serverId}
        isOpen={isOpen}
        onClose={() => setOpen(false)}
        remove={(plan) =>
          take(
            api.DELETE("/admin/api/pins/{server_id}", {
              params: { path: { server_id: serverId }, header: { "Toolgate-Plan": plan } },
            }),
          )
        }
        onRemoved={() => {
          queries.removeQueries({ queryKey: ["pin", serverId] });
          void queries.invalidateQueries({ queryKey: ["pin", "all"] });
          void navigate("/pins");
        }}
      />
    </>
  );
}
