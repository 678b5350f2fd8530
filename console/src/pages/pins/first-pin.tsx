/** A server without a pin: the tools that would be approved as they are now. */
import { Button, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";
import type { Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { type Column, DataTable } from "@/parts/data-table";
import { Empty, Loaded } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { approvable, firstPin, type Preview } from "./pin-draft";
import { previewQuery } from "./queries";
import { WritePin } from "./write-pin";

const COLUMNS: readonly Column<Preview>[] = [
  {
    key: "tool",
    title: "Tool",
    show: (one) => <Untrusted text={one.tool} mono />,
    sortBy: (one) => one.tool,
  },
  { key: "about", title: "Description", show: (one) => <Untrusted text={one.description} /> },
  {
    key: "digest",
    title: "Definition",
    show: (one) => <span className="mono">{one.digest?.slice(0, 12)}…</span>,
    isMinor: true,
  },
];

export function FirstPin({ serverId }: { readonly serverId: string }) {
  const query = useQuery(previewQuery(serverId));
  const mayPin = useMay("admin");
  const [body, setBody] = useState<Shapes["PinSent"] | null>(null);
  return (
    <Loaded query={query} what="Loading the tools">
      {({ tools }) => (
        <Stack>
          <Text>
            Tools of an unpinned server are listed without review. Pinning approves the definitions below;
            changed and new tools are quarantined until an admin approves them.
          </Text>
          {mayPin ? (
            <Button
              disabled={approvable(tools).length === 0}
              onClick={() => setBody(firstPin(serverId, tools))}
              style={{ alignSelf: "flex-start" }}
            >
              Review and pin
            </Button>
          ) : null}
          <DataTable
            label="Tools to approve"
            rows={approvable(tools)}
            columns={COLUMNS}
            keyOf={(one) => one.tool}
            sort={{ key: "tool" }}
            empty={
              <Empty
                title="No tools to approve"
                firstStep={
                  <Button component={Link} to={`/servers/${encodeURIComponent(serverId)}`} variant="default">
                    Open the server
                  </Button>
                }
              >
                The server must list its tools first. Its page shows its status.
              </Empty>
            }
          />
          {body === null ? null : (
            <WritePin title="Pin" serverId={serverId} body={body} etag={null} onClose={() => setBody(null)} />
          )}
        </Stack>
      )}
    </Loaded>
  );
}
