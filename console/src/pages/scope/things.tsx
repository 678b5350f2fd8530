/** All decisions by server, with layer, reason, rule and tokens. */
import { Badge, Button, Chip, Group, SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import { IconChevronDown, IconChevronRight } from "@tabler/icons-react";
import { useDeferredValue, useMemo, useState } from "react";
import { type Column, DataTable } from "@/parts/data-table";
import { Prose } from "@/parts/prose";
import { REASON_WORDS, ruleInWords } from "@/parts/reasons";
import { Empty } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { type Filter, filtered, type Item, type Line, linesOf, reasonsOf } from "./decisions";
import { LAYER_WORDS } from "./words";

interface ThingsProps {
  readonly items: readonly Item[];
  readonly filter: Filter;
  readonly setFilter: (part: Partial<Filter>) => void;
  readonly onAsk: (text: string) => void;
}

export function Things({ items, filter, setFilter, onAsk }: ThingsProps) {
  const [closed, setClosed] = useState<ReadonlySet<string>>(new Set());
  // Typing has priority: the table of ten thousand rows follows.
  const settled = useDeferredValue(filter);
  const shown = useMemo(() => filtered(items, settled), [items, settled]);
  const lines = useMemo(() => linesOf(shown, closed), [shown, closed]);
  const open = (line: Line) => {
    if (line.is === "item") onAsk(line.item.label);
    else setClosed(toggled(closed, line.server));
  };
  const servers = new Set(items.map((one) => one.server));
  return (
    <Stack gap="xs">
      <Filters items={items} filter={filter} setFilter={setFilter} />
      {servers.size > 1 ? (
        <Group gap="xs">
          <Button size="compact-xs" variant="default" onClick={() => setClosed(new Set(servers))}>
            Collapse all
          </Button>
          <Button
            size="compact-xs"
            variant="default"
            onClick={() => setClosed(new Set())}
            disabled={closed.size === 0}
          >
            Expand all
          </Button>
        </Group>
      ) : null}
      <DataTable
        label="Decisions"
        rows={lines}
        columns={COLUMNS}
        keyOf={(line) => (line.is === "item" ? line.item.label : line.server)}
        onOpen={open}
        empty={<Empty title="No decisions match">Clear a filter.</Empty>}
      />
    </Stack>
  );
}

function toggled(all: ReadonlySet<string>, one: string): ReadonlySet<string> {
  const next = new Set(all);
  if (!next.delete(one)) next.add(one);
  return next;
}

function Filters({ items, filter, setFilter }: Omit<ThingsProps, "onAsk">) {
  const reasons = useMemo(() => reasonsOf(items), [items]);
  const allowed = items.filter((one) => one.decision.allowed).length;
  return (
    <Stack gap="xs">
      <Group gap="sm">
        <SegmentedControl
          aria-label="Show"
          size="xs"
          value={filter.show}
          data={[
            { value: "all", label: `All ${count(items.length)}` },
            { value: "in", label: `In scope ${count(allowed)}` },
            { value: "out", label: `Excluded ${count(items.length - allowed)}` },
          ]}
          onChange={(show) => setFilter({ show: show === "in" || show === "out" ? show : "all" })}
        />
        <TextInput
          aria-label="Filter by name"
          placeholder="Filter by name"
          size="xs"
          type="search"
          value={filter.text}
          onChange={(event) => setFilter({ text: event.currentTarget.value })}
        />
        {filter.layer === null ? null : (
          <Chip size="xs" checked onChange={() => setFilter({ layer: null })}>
            excluded by the {filter.layer} layer
          </Chip>
        )}
      </Group>
      {reasons.length > 0 ? (
        <Group gap={6} role="group" aria-label="Reasons">
          {reasons.map(({ reason, count: many }) => (
            <Chip
              key={reason}
              size="xs"
              checked={filter.reason === reason}
              onChange={(isOn) => setFilter({ reason: isOn ? reason : null })}
            >
              {REASON_WORDS[reason].title} ({count(many)})
            </Chip>
          ))}
        </Group>
      ) : null}
    </Stack>
  );
}

const COLUMNS: readonly Column<Line>[] = [
  { key: "name", title: "Name", show: (line) => <Name line={line} /> },
  {
    key: "seen",
    title: "Decision",
    width: 110,
    show: (line) => (line.is === "item" ? <InOrOut item={line.item} /> : null),
  },
  {
    key: "layer",
    title: "Decided by",
    width: 110,
    isMinor: true,
    show: (line) => (line.is === "item" ? LAYER_WORDS[line.item.decision.layer].title : null),
  },
  {
    key: "why",
    title: "Reason",
    isMinor: true,
    show: (line) => (line.is === "item" ? <Reasoning item={line.item} /> : null),
  },
  {
    key: "tokens",
    title: "Tokens",
    width: 80,
    align: "right",
    isMinor: true,
    show: (line) =>
      line.is === "item" && typeof line.item.decision.tokens === "number"
        ? count(line.item.decision.tokens)
        : null,
  },
];

function Name({ line }: { readonly line: Line }) {
  if (line.is === "item") {
    return (
      <Text size="sm" pl="lg" component="div" lineClamp={1}>
        <Untrusted text={line.item.name} mono />
      </Text>
    );
  }
  const Icon = line.isOpen ? IconChevronDown : IconChevronRight;
  return (
    <Group gap={6} wrap="nowrap">
      <Icon size={16} aria-label={line.isOpen ? "open" : "closed"} />
      <Text size="sm" fw={700} component="div" lineClamp={1}>
        <Untrusted text={line.server} />
      </Text>
      <Text size="xs" c="dimmed">
        {count(line.allowed)} of {count(line.total)} in scope
      </Text>
    </Group>
  );
}

function InOrOut({ item }: { readonly item: Item }) {
  const { decision } = item;
  const { allowed } = decision;
  return (
    <Badge color={allowed ? "green" : "red"} variant="light" tt="none">
      {!allowed ? "excluded" : decision.approval === null ? "in scope" : "needs approval"}
    </Badge>
  );
}

function Reasoning({ item: { decision } }: { readonly item: Item }) {
  const words = decision.reason === null ? ruleInWords(decision.rule) : REASON_WORDS[decision.reason].title;
  return (
    <Text size="sm" component="div" lineClamp={1}>
      {words ? `${words} · ` : null}
      <Prose text={decision.rule} />
    </Text>
  );
}
