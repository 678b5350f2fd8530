/** The picked tools, and what they make: a skill, a URL, and the settings of clients. */
import { Alert, Button, CopyButton, Group, Stack, Tabs, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { Link, useSearchParams } from "react-router";
import { ConnectPanel } from "@/parts/connect-panel";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure } from "@/parts/states";
import { Trail } from "@/parts/trail";
import { Cost } from "./pick-bar";
import { PickedList } from "./picked-list";
import { MOST_URL_CHARS, namesIn, type Picks, tokensOf } from "./picks";
import { type PickedScope, scopeQuery } from "./queries";
import { SkillPanel } from "./skill-panel";
import { TaskChoice } from "./task-choice";
import { usePicks } from "./use-picks";

/** An address that names tools has them picked, in place of others. */
function useAdopted(keep: (picks: Picks) => void): void {
  const [params, setParams] = useSearchParams();
  const names = params.get("tools");
  useEffect(() => {
    if (names === null) return;
    keep(new Map(namesIn(names).map((one) => [one, 0])));
    setParams(
      (old) => {
        old.delete("tools");
        return old;
      },
      { replace: true },
    );
  }, [names, keep, setParams]);
}

/** What the gateway says each tool costs counts before what was known when it was picked. */
function usePrices(picks: Picks, scope: PickedScope | undefined, keep: (picks: Picks) => void): void {
  useEffect(() => {
    const priced = [...picks].map(([name, tokens]) => [name, scope?.prices.get(name) ?? tokens] as const);
    if (priced.some(([name, tokens]) => picks.get(name) !== tokens)) keep(new Map(priced));
  }, [picks, scope, keep]);
}

export function PickedPage() {
  const { picks, keep } = usePicks();
  useAdopted(keep);
  const [params, setParams] = useSearchParams();
  const task = params.get("task") ?? "";
  const names = [...picks.keys()];
  const scope = useQuery({ ...scopeQuery(names, task), enabled: names.length > 0 });
  usePrices(picks, scope.data, keep);
  const set = (name: string, value: string) =>
    setParams(
      (old) => {
        if (value) old.set(name, value);
        else old.delete(name);
        return old;
      },
      { replace: true },
    );
  if (names.length === 0)
    return (
      <Empty title="Nothing is picked">
        Tick tools in <Link to="/catalog">the catalog</Link>. They are kept here while this tab is open.
      </Empty>
    );
  return (
    <>
      <Trail above={[{ title: "Catalog", path: "/catalog" }]} here="Picked tools" />
      <PageHead title="Picked tools" about={<Cost tokens={tokensOf(picks)} />}>
        <ShareButton names={names} />
        <Button variant="default" onClick={() => keep(new Map())}>
          Clear
        </Button>
      </PageHead>
      <Stack gap="lg">
        {scope.isError ? <Failure error={scope.error} onRetry={() => void scope.refetch()} /> : null}
        <PickedList picks={picks} keep={keep} scope={scope.isPlaceholderData ? undefined : scope.data} />
        <Uses names={names} task={task} tab={params.get("tab") ?? "skill"} set={set} />
      </Stack>
    </>
  );
}

function ShareButton({ names }: { readonly names: readonly string[] }) {
  const query = new URLSearchParams({ tools: names.join(",") });
  const url = `${window.location.origin}${import.meta.env.BASE_URL}catalog/picked?${query}`;
  if (url.length > MOST_URL_CHARS) return null;
  return (
    <CopyButton value={url}>
      {({ copied, copy }) => (
        <Button variant="default" onClick={copy}>
          {copied ? "Copied" : "Copy link to these"}
        </Button>
      )}
    </CopyButton>
  );
}

interface UsesProps {
  readonly names: readonly string[];
  readonly task: string;
  readonly tab: string;
  readonly set: (name: string, value: string) => void;
}

function Uses({ names, task, tab, set }: UsesProps) {
  return (
    <Tabs value={tab === "connect" ? "connect" : "skill"} onChange={(value) => set("tab", value ?? "")}>
      <Tabs.List mb="md">
        <Tabs.Tab value="skill">Skill manifest</Tabs.Tab>
        <Tabs.Tab value="connect">URL and clients</Tabs.Tab>
      </Tabs.List>
      <Tabs.Panel value="skill">
        <SkillPanel tools={names} />
      </Tabs.Panel>
      <Tabs.Panel value="connect">
        <Connect names={names} task={task} set={set} />
      </Tabs.Panel>
    </Tabs>
  );
}

function Connect({ names, task, set }: Omit<UsesProps, "tab">) {
  const tools = names.join(",");
  if (tools.length > MOST_URL_CHARS)
    return (
      <Alert color="yellow" title="These are too many for a URL">
        Not every client takes one as long. Save the skill manifest, and make a task of it with{" "}
        <span className="mono">toolgate skill apply FILE</span>.
      </Alert>
    );
  return (
    <Stack maw={960}>
      <Group>
        <TaskChoice
          value={task}
          onChange={(value) => set("task", value)}
          about="With a task, its rules hold as well."
        />
      </Group>
      <Text size="sm">Whoever connects here sees the picked tools, and no others.</Text>
      <ConnectPanel tools={tools} {...(task ? { task } : {})} />
    </Stack>
  );
}
