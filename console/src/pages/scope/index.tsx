/** The scope lens: why a caller sees these tools and not others, layer by layer. */
import { Alert, Button, Card, CopyButton, Group, SegmentedControl, Stack, Text } from "@mantine/core";
import { IconLink } from "@tabler/icons-react";
import { useCallback, useMemo } from "react";
import { Link, useLocation } from "react-router";
import type { Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { Copy } from "@/parts/copy";
import { PageHead } from "@/parts/page-head";
import { Warnings } from "@/parts/plan-panel";
import { Prose } from "@/parts/prose";
import { Empty, Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { funnelOf, type Item, KINDS, type Kind } from "./decisions";
import { Funnel } from "./funnel";
import { Picker } from "./picker";
import { Things } from "./things";
import { useExplanation, useScopeUrl, useView } from "./use-lens";
import { Why } from "./why-card";

export default function ScopePage() {
  const lens = useView();
  const { answer, items } = useExplanation(lens.view.selection);
  return (
    <>
      <PageHead title="Scope lens" about="Which tools a caller sees, and why.">
        <CopyLink />
      </PageHead>
      <Stack gap="md">
        <Card withBorder padding="md">
          <Picker selection={lens.view.selection} select={lens.select} />
          <ScopeUrl lens={lens} />
        </Card>
        <Loaded query={answer} what="Computing the scope">
          {(explained) => <Explained lens={lens} explained={explained} items={items} />}
        </Loaded>
      </Stack>
    </>
  );
}

/** The URL of this view, to share. */
function CopyLink() {
  useLocation();
  return (
    <CopyButton value={window.location.href}>
      {({ copied, copy }) => (
        <Button variant="default" leftSection={<IconLink size={16} />} onClick={copy}>
          {copied ? "Copied" : "Copy link"}
        </Button>
      )}
    </CopyButton>
  );
}

type Lens = ReturnType<typeof useView>;

function ScopeUrl({ lens }: { readonly lens: Lens }) {
  const { data: url } = useScopeUrl(lens.view.selection);
  if (url === undefined) return null;
  return (
    <Group gap="xs" mt="sm" wrap="nowrap">
      <Text size="sm" c="dimmed" component="div">
        Client URL: <Untrusted text={url} mono />
      </Text>
      <Copy text={url} label="Copy URL" />
    </Group>
  );
}

interface ExplainedProps {
  readonly lens: Lens;
  readonly explained: Shapes["ExplainResponse"];
  readonly items: readonly Item[];
}

function Explained({ lens, explained, items }: ExplainedProps) {
  const { view, change, filter } = lens;
  const knowsAll = useMay("viewer");
  const shown = useMemo(() => items.filter((one) => one.kind === view.kind), [items, view.kind]);
  const funnel = useMemo(() => funnelOf(shown), [shown]);
  const ask = useCallback((why: string) => change({ why }), [change]);
  const show = (why: string) => {
    ask(why);
    document.getElementById("why")?.scrollIntoView({ block: "start" });
  };
  return (
    <Stack gap="md">
      <Why
        text={view.why}
        onAsk={ask}
        items={items}
        servers={explained.servers}
        pending={explained.pending}
        selection={view.selection}
      />
      <Said explained={explained} />
      {knowsAll ? null : <Alert color="blue">Your role shows only what you may call.</Alert>}
      <KindChoice items={items} kind={view.kind} onChange={(kind) => change({ kind })} />
      <Funnel
        funnel={funnel}
        kind={view.kind}
        isRefused={explained.refusal !== null}
        chosen={view.filter.layer}
        onChoose={(layer) => filter({ layer })}
      />
      {shown.length === 0 ? (
        <Empty
          title={`No ${view.kind}s`}
          firstStep={
            view.kind === "tool" ? (
              <Button component={Link} to="/servers" variant="default">
                Open the servers
              </Button>
            ) : null
          }
        >
          {view.kind === "tool" ? "No server has listed tools." : "No server lists any."}
        </Empty>
      ) : (
        <Things items={shown} filter={view.filter} setFilter={filter} onAsk={show} />
      )}
    </Stack>
  );
}

/** Denial and warnings of the whole scope. */
function Said({ explained }: { readonly explained: Shapes["ExplainResponse"] }) {
  const { refusal, warnings, pending, unverified, mode } = explained;
  return (
    <>
      {refusal ? (
        <Alert color="red" title={<Prose text={`Denied: ${refusal.message}`} />}>
          <Prose text={refusal.hint} />
        </Alert>
      ) : null}
      <Warnings warnings={warnings} />
      {pending.length > 0 ? (
        <Alert color="yellow">
          Servers that have not listed their tools yet: <Untrusted text={pending.join(", ")} mono />
        </Alert>
      ) : null}
      {unverified.length > 0 ? (
        <Alert color="gray">
          Servers with tools from an earlier run, not verified since:{" "}
          <Untrusted text={unverified.join(", ")} mono />
        </Alert>
      ) : null}
      {mode === "find" ? (
        <Alert color="blue">
          Find mode: clients do not see these tools in the list, but three tools that find and call them.
        </Alert>
      ) : null}
    </>
  );
}

function KindChoice({
  items,
  kind,
  onChange,
}: {
  items: readonly Item[];
  kind: Kind;
  onChange: (kind: Kind) => void;
}) {
  const data = KINDS.map((one) => ({
    value: one,
    label: `${one[0]?.toUpperCase()}${one.slice(1)}s ${count(items.filter((item) => item.kind === one).length)}`,
  }));
  return (
    <SegmentedControl
      aria-label="Kind"
      value={kind}
      data={data}
      onChange={(value) => onChange(KINDS.find((one) => one === value) ?? "tool")}
    />
  );
}
