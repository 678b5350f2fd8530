/** The form of a new server. */
import { useNavigate } from "react-router";
import { useMay } from "@/api/me";
import { SAVED } from "@/parts/leave-guard";
import { PageHead } from "@/parts/page-head";
import { Empty } from "@/parts/states";
import { Editor } from "./editor";

export function NewServer() {
  const navigate = useNavigate();
  if (!useMay("admin"))
    return (
      <Empty title="Only admins can add servers">
        Servers run programs, so adding one requires the role admin.
      </Empty>
    );
  return (
    <>
      <PageHead title="New server" about="An MCP server that this gateway starts or connects to." />
      <Editor saved={null} onSaved={(serverId) => navigate(`/servers/${serverId}`, { state: SAVED })} />
    </>
  );
}
