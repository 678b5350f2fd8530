/** All chat upstreams, with their models. */
import { Badge, Button, Text } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { useMay } from "@/api/me";
import { type Column, DataTable } from "@/parts/data-table";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import type { Upstream } from "./draft";
import { upstreamsQuery } from "./queries";

const COLUMNS: readonly Column<Upstream>[] = [
  {
    key: "id",
    title: "Upstream",
    show: (one) => (
      <>
        <Text size="sm" fw={600} component="div">
          <Untrusted text={one.display_name || one.upstream_id} />
        </Text>
        {one.display_name ? (
          <Text size="xs" c="dimmed" component="div">
            <Untrusted text={one.upstream_id} mono />
          </Text>
        ) : null}
      </>
    ),
    sortBy: (one) => one.upstream_id,
  },
  { key: "state", title: "State", show: (one) => <Enabled upstream={one} /> },
  { key: "models", title: "Models", show: (one) => <Untrusted text={one.models.join(", ")} mono /> },
  { key: "mode", title: "Mode", show: (one) => one.mode, isMinor: true },
  { key: "url", title: "URL", show: (one) => <Untrusted text={one.base_url} mono />, isMinor: true },
];

export function Enabled({ upstream }: { readonly upstream: Upstream }) {
  return (
    <Badge color={upstream.enabled ? "green" : "gray"} variant="light" tt="none" miw="max-content">
      {upstream.enabled ? "enabled" : "disabled"}
    </Badge>
  );
}

export function UpstreamList() {
  const mayWrite = useMay("admin");
  const upstreams = useQuery(upstreamsQuery);
  return (
    <>
      <PageHead title="Chat upstreams" about="The model servers that the chat endpoint uses.">
        {mayWrite ? (
          <Button component={Link} to="/models/-/new" leftSection={<IconPlus size={16} />}>
            New chat upstream
          </Button>
        ) : null}
      </PageHead>
      <Loaded query={upstreams} what="Loading the chat upstreams">
        {(rows) => (
          <DataTable
            label="Chat upstreams"
            rows={rows}
            columns={COLUMNS}
            keyOf={(one) => one.upstream_id}
            hrefOf={(one) => encodeURIComponent(one.upstream_id)}
            sort={{ key: "id" }}
            empty={
              <Empty
                title="No chat upstreams yet"
                firstStep={
                  mayWrite ? (
                    <Button component={Link} to="/models/-/new">
                      Add the first one
                    </Button>
                  ) : null
                }
              >
                {mayWrite
                  ? "Add a server that speaks the OpenAI API: OpenAI, Azure, Ollama, vLLM, llama.cpp and most others."
                  : "Adding one requires the role admin."}
              </Empty>
            }
          />
        )}
      </Loaded>
    </>
  );
}
