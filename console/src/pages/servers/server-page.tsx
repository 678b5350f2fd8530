/** One server: status, tools, history and record. */
import { Badge, Button, Group, Tabs } from "@mantine/core";
import { IconTrash } from "@tabler/icons-react";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate, useParams } from "react-router";
import { api, take } from "@/api/client";
import { useMay } from "@/api/me";
import { ConfirmDelete } from "@/parts/confirm-delete";
import { HistoryPanel } from "@/parts/history-panel";
import { SAVED } from "@/parts/leave-guard";
import { PageHead } from "@/parts/page-head";
import { Loaded } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { Editor } from "./editor";
import { OverviewTab } from "./overview-tab";
import { serverQuery } from "./queries";
import type { Server } from "./server-form";
import { offerOf, statusOf } from "./server-status";
import { NextAction, OfferLine, StateWords } from "./server-words";
import { ToolsTab } from "./tools-tab";

const TABS = ["overview", "tools", "history", "edit"] as const;
type Tab = (typeof TABS)[number];
const TITLES: Readonly<Record<Tab, string>> = {
  overview: "Overview",
  tools: "Tools",
  history: "History",
  edit: "Edit",
};

export function ServerPage() {
  const { serverId = "" } = useParams();
  const query = useQuery(serverQuery(serverId));
  return (
    <Loaded query={query} what="Loading the server">
      {({ record, etag }) => <Content key={serverId} server={record} etag={etag} />}
    </Loaded>
  );
}

function Content({ server, etag }: { readonly server: Server; readonly etag: string }) {
  const { tab } = useParams();
  const navigate = useNavigate();
  const mayWrite = useMay("admin");
  const shown = TABS.find((one) => one === tab) ?? "overview";
  const place = `/servers/${server.server_id}`;
  return (
    <>
      <PageHead title={server.display_name || server.server_id} about={<About server={server} />}>
        <NextAction server={server} isFilled />
        {mayWrite ? <Delete server={server} etag={etag} /> : null}
      </PageHead>
      <Tabs
        value={shown}
        onChange={(next) => navigate(next === "overview" ? place : `${place}/${next}`)}
        keepMounted={false}
      >
        <Tabs.List mb="md">
          {TABS.map((one) => (
            <Tabs.Tab key={one} value={one}>
              {one === "edit" && !mayWrite ? "Record" : TITLES[one]}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <Tabs.Panel value="overview">
          <OverviewTab server={server} />
        </Tabs.Panel>
        <Tabs.Panel value="tools">
          <ToolsTab server={server} etag={etag} />
        </Tabs.Panel>
        <Tabs.Panel value="history">
          <HistoryPanel kind="server" id={server.server_id} />
        </Tabs.Panel>
        <Tabs.Panel value="edit">
          <Editor saved={{ body: server, etag }} onSaved={() => navigate(place, { state: SAVED })} />
        </Tabs.Panel>
      </Tabs>
    </>
  );
}

function About({ server }: { readonly server: Server }) {
  const offer = offerOf(server);
  return (
    <Group gap="xs" component="span">
      <StateWords status={statusOf(server)} />
      {offer === null ? null : <OfferLine offer={offer} />}
      {server.display_name ? <Untrusted text={server.server_id} mono /> : null}
      {server.category ? <Untrusted text={server.category} /> : null}
      {(server.tags ?? []).map((tag) => (
        <Badge key={tag} size="sm" variant="default" tt="none" component="span">
          <Untrusted text={tag} />
        </Badge>
      ))}
    </Group>
  );
}

function Delete({ server, etag }: { readonly server: Server; readonly etag: string }) {
  const [isOpen, setOpen] = useState(false);
  const queries = useQueryClient();
  const navigate = useNavigate();
  const remove = (plan: string) =>
    take(
      api.DELETE("/admin/api/mcp/servers/{server_id}", {
        params: {
          path: { server_id: server.server_id },
          header: { "Toolgate-Plan": plan, "If-Match": etag },
        },
      }),
    );
  return (
    <>
      <Button
        variant="default"
        color="red"
        leftSection={<IconTrash size={16} />}
        onClick={() => setOpen(true)}
      >
        Delete
      </Button>
      <ConfirmDelete
        kind="server"
        id={server.server_id}
        isOpen={isOpen}
        onClose={() => setOpen(false)}
        remove={remove}
        onRemoved={() => {
          void navigate("/servers", { state: SAVED });
          void queries.invalidateQueries({ queryKey: ["server", "all"] });
        }}
      />
    </>
  );
}
