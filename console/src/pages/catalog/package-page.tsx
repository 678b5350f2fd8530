/** One package, or a server without one, with its tools. */
import { Alert, Button, Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useParams } from "react-router";
import type { Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { CodeBlock } from "@/parts/copy";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure, Loaded } from "@/parts/states";
import { ago, bytes, count, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { Tags } from "./category-page";
import { PackageBox } from "./pick-box";
import { packageQuery, type Tool, toolsQuery } from "./queries";
import { ToolRow } from "./tool-row";

/** So many tools are made at once. */
const AT_ONCE = 100;

export function PackagePage() {
  const { package: id = "" } = useParams();
  const query = useQuery(toolsQuery(id));
  const mayRead = useMay("viewer");
  const first = query.data?.[0];
  const category = first
    ? [{ title: first.category, path: `/catalog?${new URLSearchParams({ category: first.category })}` }]
    : [];
  return (
    <>
      <PageHead title={id} above={category} about={first ? <Tags tags={first.tags} /> : undefined}>
        {mayRead ? (
          <Button variant="default" component={Link} to={`/servers/${encodeURIComponent(id)}`}>
            {" "}
            Open the server{" "}
          </Button>
        ) : null}
        {query.data ? <PickWhole id={id} tools={query.data} /> : null}
      </PageHead>
      <Stack>
        {mayRead ? <Installed id={id} /> : null}
        <Loaded query={query} what="Loading the tools">
          {(tools) => <Tools tools={tools} />}
        </Loaded>
      </Stack>
    </>
  );
}

function Tools({ tools }: { readonly tools: readonly Tool[] }) {
  const [shown, setShown] = useState(AT_ONCE);
  if (tools.length === 0)
    return <Empty title="No tools">The server lists no tools that you can reach.</Empty>;
  return (
    <Stack gap="xs" component="section" aria-label="Tools">
      {tools.slice(0, shown).map((one) => (
        <ToolRow key={one.fullName} tool={one} />
      ))}
      {tools.length > shown ? (
        <Button variant="default" onClick={() => setShown(shown + AT_ONCE)}>
          Show more of {count(tools.length)}
        </Button>
      ) : null}
    </Stack>
  );
}

function PickWhole({ id, tools }: { readonly id: string; readonly tools: readonly Tool[] }) {
  const tokens = tools.reduce((sum, one) => sum + one.tokens, 0);
  const known = tools.filter((one) => one.name !== "*").length;
  return <PackageBox id={id} pick={{ tokens, tools: known }} label="Pick the whole package" />;
}

/** Which version is installed, and which were uploaded. */
function Installed({ id }: { readonly id: string }) {
  const query = useQuery(packageQuery(id));
  const mayInstall = useMay("admin");
  if (query.isError) return <Failure error={query.error} onRetry={() => void query.refetch()} />;
  const found = query.data;
  if (!found) return null;
  return (
    <Alert color="gray" title={found.name ? <Untrusted text={found.name} /> : "Package"}>
      <Stack gap={4}>
        {found.description ? <Untrusted text={found.description} /> : null}
        {found.versions.map((one) => (
          <Group key={one.version} gap="xs">
            <Untrusted text={one.version} mono />
            <Text size="sm">{one.installed ? "installed" : "uploaded"}</Text>
            <Text size="sm" c="dimmed" title={moment(one.at_ms)}>
              {bytes(one.size)}, {ago(one.at_ms)}
            </Text>
          </Group>
        ))}
        {mayInstall ? <Commands found={found} /> : null}
      </Stack>
    </Alert>
  );
}

/** Packages are installed from a terminal: the commands. */
function Commands({ found }: { readonly found: Shapes["PackageShown"] }) {
  const others = found.versions.filter((one) => !one.installed);
  const isInstalled = others.length < found.versions.length;
  return (
    <>
      {others.map((one) => (
        <div key={one.version}>
          <Text size="sm">
            Install <Untrusted text={one.version} mono /> from a terminal:
          </Text>
          <CodeBlock
            text={`toolgate packages install ${found.package_id}@${one.version}`}
            label="the install command"
          />
        </div>
      ))}
      {isInstalled ? (
        <>
          <Text size="sm">Uninstall it from a terminal:</Text>
          <CodeBlock text={`toolgate packages uninstall ${found.package_id}`} label="the uninstall command" />
        </>
      ) : null}
    </>
  );
}
