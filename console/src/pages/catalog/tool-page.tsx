/** One tool: its definition, and the way to the playground. */
import { Button } from "@mantine/core";
import { IconPlayerPlay } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link, Navigate, useSearchParams } from "react-router";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { playPath } from "../playground/paths";
import { Definition } from "./definition";
import { packagePath, serverOf, whyPath } from "./paths";
import { PickBox } from "./pick-box";
import { type Tool, toolsQuery } from "./queries";

export function ToolPage() {
  const [params] = useSearchParams();
  const name = params.get("name") ?? "";
  const server = serverOf(name);
  const query = useQuery({ ...toolsQuery(server), enabled: server !== "" });
  if (server === "") return <Missing name={name} />;
  // Links to the tab that was here before the playground.
  if (params.get("tab") === "try") return <Navigate to={playPath(name, params.get("task") ?? "")} replace />;
  return (
    <Loaded query={query} what="Loading the tool">
      {(tools) => {
        const tool = tools.find((one) => one.fullName === name);
        return tool ? <ToolShown tool={tool} /> : <Missing name={name} />;
      }}
    </Loaded>
  );
}

function Missing({ name }: { readonly name: string }) {
  return (
    <Empty title="Tool not found">
      It does not exist, or you cannot reach it. <Link to={whyPath(name)}>The scope lens shows why</Link>.
    </Empty>
  );
}

function ToolShown({ tool }: { readonly tool: Tool }) {
  return (
    <>
      <PageHead
        title={tool.fullName}
        above={[{ title: serverOf(tool.fullName), path: packagePath(serverOf(tool.fullName)) }]}
        about={tool.title ? <Untrusted text={tool.title} /> : undefined}
      >
        <PickBox tool={tool} label="Picked" />
        <Button variant="default" component={Link} to={whyPath(tool.fullName)}>
          Scope lens
        </Button>
        <Button component={Link} to={playPath(tool.fullName)} leftSection={<IconPlayerPlay size={16} />}>
          Try it
        </Button>
      </PageHead>
      <Definition tool={tool} />
    </>
  );
}
