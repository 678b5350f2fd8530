/** The picked packages and tools, and what they make: a skill, a URL, and the settings of clients. */
import { Alert, Button, CopyButton, Stack, Tabs } from "@mantine/core";
import { IconStack2 } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { Link, useSearchParams } from "react-router";
import { useMay } from "@/api/me";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure, Skeletons } from "@/parts/states";
import { count } from "@/parts/time";
import { Bundle } from "./bundle";
import { Cost, spoken } from "./pick-bar";
import { PickedList } from "./picked-list";
import {
  addressOf,
  frozenNames,
  MOST_PICKS,
  type Picks,
  picksIn,
  policyOf,
  tokensOf,
  withPrices,
} from "./picks";
import { type PickedScope, scopeQuery } from "./queries";
import { SkillPanel } from "./skill-panel";
import { usePicks } from "./use-picks";

/** Keeps the picks in the URL: opening a URL picks its tools, and picks update the URL. */
function useAddress(picks: Picks, keep: (picks: Picks) => void): void {
  const [params, setParams] = useSearchParams();
  const servers = params.get("servers");
  const tools = params.get("tools");
  const written = useRef("");
  useEffect(() => {
    const named = `${servers ?? ""};${tools ?? ""}`;
    if (named !== written.current && named !== ";") {
      written.current = named;
      keep(picksIn(servers, tools));
      return;
    }
    const address = addressOf(picks);
    written.current = `${address.servers};${address.tools}`;
    if (written.current === named) return;
    setParams(
      (old) => {
        for (const [name, value] of Object.entries(address)) {
          if (value === "") old.delete(name);
          else old.set(name, value);
        }
        return old;
      },
      { replace: true },
    );
  }, [servers, tools, picks, keep, setParams]);
}

/** The gateway's token counts take precedence over those known when a tool was picked. */
function usePrices(picks: Picks, scope: PickedScope | undefined, keep: (picks: Picks) => void): void {
  useEffect(() => {
    if (scope === undefined) return;
    const priced = withPrices(picks, scope.prices);
    if (priced !== picks) keep(priced);
  }, [picks, scope, keep]);
}

export function PickedPage() {
  const { picks, keep } = usePicks();
  const mayWrite = useMay("publisher");
  useAddress(picks, keep);
  const [params, setParams] = useSearchParams();
  const task = params.get("task") ?? "";
  const names = [...picks.keys()];
  const query = useQuery({ ...scopeQuery(names, task), enabled: names.length > 0 });
  const scope = query.isPlaceholderData ? undefined : query.data;
  usePrices(picks, scope, keep);
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
      <Empty title="No tools picked">
        Select tools and packages in <Link to="/catalog">the catalog</Link>. The picks are kept while this tab
        is open.
      </Empty>
    );
  return (
    <>
      <PageHead
        title="Picked tools"
        about={
          <>
            {spoken(picks)}, about <Cost tokens={tokensOf(picks)} />
          </>
        }
      >
        <Button variant="default" onClick={() => keep(new Map())}>
          Clear
        </Button>
        <HandOverButton picks={picks} />
        <ShareButton picks={picks} />
        {mayWrite ? (
          <Button
            component={Link}
            to="/tasks/-/new"
            state={{ picked: policyOf(picks) }}
            leftSection={<IconStack2 size={16} />}
          >
            Make a task
          </Button>
        ) : null}
      </PageHead>
      <Stack gap="lg">
        {query.isError ? <Failure error={query.error} onRetry={() => void query.refetch()} /> : null}
        <PickedList picks={picks} keep={keep} scope={scope} />
        {query.isError ? null : scope === undefined ? (
          <Skeletons what="Loading the picks" />
        ) : (
          <Uses picks={picks} scope={scope} task={task} params={params} set={set} />
        )}
      </Stack>
    </>
  );
}

/** A key for these tools alone. A URL that would be too long names none: the page has the picks anyway. */
function HandOverButton({ picks }: { readonly picks: Picks }) {
  const named = Object.entries(addressOf(picks)).filter(([, value]) => value !== "");
  if (!useMay("admin")) return null;
  return (
    <Button component={Link} to={`/keys/-/hand-over?${new URLSearchParams([["from", "picks"], ...named])}`}>
      Hand over
    </Button>
  );
}

function ShareButton({ picks }: { readonly picks: Picks }) {
  const named = Object.entries(addressOf(picks)).filter(([, value]) => value !== "");
  if (named.length === 0) return null;
  const url = `${window.location.origin}${import.meta.env.BASE_URL}catalog/picked?${new URLSearchParams(named)}`;
  return (
    <CopyButton value={url}>
      {({ copied, copy }) => (
        <Button variant="default" onClick={copy}>
          {copied ? "Copied" : "Copy link"}
        </Button>
      )}
    </CopyButton>
  );
}

interface UsesProps {
  readonly picks: Picks;
  readonly scope: PickedScope;
  readonly task: string;
  readonly params: URLSearchParams;
  readonly set: (name: string, value: string) => void;
}

function Uses({ picks, scope, task, params, set }: UsesProps) {
  const names = frozenNames(picks, scope.prices);
  return (
    <Tabs
      value={params.get("tab") === "connect" ? "connect" : "skill"}
      onChange={(value) => set("tab", value ?? "")}
    >
      <Tabs.List mb="md">
        <Tabs.Tab value="skill">Skill manifest</Tabs.Tab>
        <Tabs.Tab value="connect">URL and clients</Tabs.Tab>
      </Tabs.List>
      <Tabs.Panel value="skill">
        {names.length > MOST_PICKS ? (
          <Alert color="yellow" title="Too many tools for a skill">
            A skill can name {count(MOST_PICKS)} tools at most; picked: {count(names.length)}.
          </Alert>
        ) : (
          <SkillPanel tools={names} />
        )}
      </Tabs.Panel>
      <Tabs.Panel value="connect">
        <Bundle picks={picks} names={names} task={task} form={params.get("form") ?? ""} set={set} />
      </Tabs.Panel>
    </Tabs>
  );
}
