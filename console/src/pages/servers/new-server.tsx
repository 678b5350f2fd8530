/** A server that is not there yet. */
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
      <Empty title="Administrators add servers">A server runs programs, so your role is not enough.</Empty>
    );
  return (
    <>
      <PageHead title="New server" about="An MCP server that this gateway starts, or connects to." />
      <Editor saved={null} onSaved={(serverId) => navigate(`/servers/${serverId}`, { state: SAVED })} />
    </>
  );
}
