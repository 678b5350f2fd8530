/** A new server: in one field, or in the form of every field. */
import { useState } from "react";
import { useNavigate } from "react-router";
import { useMay } from "@/api/me";
import { SAVED } from "@/parts/leave-guard";
import { PageHead } from "@/parts/page-head";
import { Empty } from "@/parts/states";
import { AddServer } from "./add-server";
import { Editor } from "./editor";
import { BLANK, type Body } from "./server-form";

export function NewServer() {
  const navigate = useNavigate();
  const [known, setKnown] = useState<Body | null>(null);
  const onSaved = (serverId: string) => navigate(`/servers/${serverId}`, { state: SAVED });
  if (!useMay("admin"))
    return (
      <Empty title="Only admins can add servers">
        Servers run programs, so adding one requires the role admin.
      </Empty>
    );
  return (
    <>
      <PageHead title="New server" about="An MCP server that this gateway starts or connects to." />
      {known === null ? (
        <AddServer onSaved={onSaved} onAllSettings={(body) => setKnown(body ?? BLANK)} />
      ) : (
        <Editor saved={null} typed={known} onSaved={onSaved} />
      )}
    </>
  );
}
