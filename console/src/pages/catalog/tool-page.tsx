/** One tool: its definition, and a way to try it. */
import { Alert, Button, Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { Definition } from "./definition";
import { packagePath, serverOf, whyPath } from "./paths";
import { PickBox } from "./pick-box";
import { type Tool, toolsQuery } from "./queries";
import { TryIt } from "./try-it";

export function ToolPage() {
  const [params] = useSearchParams();
  const name = params.get("name") ?? "";
  const server = serverOf(name);
  const query = useQuery({ ...toolsQuery(server), enabled: server !== "" });
  if (server === "") return <Missing name={name} />;
  return (
    <Loaded query={query} what="Loading the tool">
      {(tools) => {
        const tool = tools.find((one) => one.fullName === name);
        return tool ? <ToolTabs key={name} tool={tool} /> : <Missing name={name} />;
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

function ToolTabs({ tool }: { readonly tool: Tool }) {
  const [params, setParams] = useSearchParams();
  const tab = params.get("tab") === "try" ? "try" : "definition";
  const open = (value: string | null) =>
    setParams(
      (old) => {
        if (value === "try") old.set("tab", "try");
        else old.delete("tab");
        return old;
      },
      { replace: true },
    );
  return (
    <>
      <PageHead
        title={tool.fullName}
        above={[{ title: serverOf(tool.fullName), path: packagePath(serverOf(tool.fullName)) }]}
        about={tool.title ? <Untrusted text={tool.title} /> : undefined}
      >
        <Button variant="default" component={Link} to={whyPath(tool.fullName)}>
          Scope lens
        </Button>
        <PickBox tool={tool} label="Picked" />
      </PageHead>
      <Tabs value={tab} onChange={open} keepMounted={false}>
        <Tabs.List mb="md">
          <Tabs.Tab value="definition">Definition</Tabs.Tab>
          <Tabs.Tab value="try">Try it</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value="definition">
          <Definition tool={tool} />
        </Tabs.Panel>
        <Tabs.Panel value="try">
          {tool.source === "summary" ? (
            <Alert color="yellow" title="Summary only">
              The schema is unknown until the server lists the tool. Enter the arguments as JSON.
            </Alert>
          ) : null}
          <TryIt tool={tool} />
        </Tabs.Panel>
      </Tabs>
    </>
  );
}
