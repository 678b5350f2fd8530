/** Tools to offer, as ticks: what each does and costs, read-only ones first. */
import { Badge, Button, Checkbox, Group, Stack, Text, TextInput } from "@mantine/core";
import { IconSearch } from "@tabler/icons-react";
import { useMemo, useState } from "react";
import { type Column, DataTable } from "@/parts/data-table";
import { Empty } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { byRisk, type Choosable, isDestructive, isReadOnly, usualTicks } from "./choice";

/** More tools than this get a search field. */
const SEARCHED_FROM = 12;

interface ToolTicksProps {
  readonly tools: readonly Choosable[];
  readonly ticked: ReadonlySet<string>;
  readonly onTick: (ticked: ReadonlySet<string>) => void;
}

function columnsOf({ ticked, onTick }: ToolTicksProps): Column<Choosable>[] {
  const toggle = (name: string) => {
    const next = new Set(ticked);
    if (!next.delete(name)) next.add(name);
    onTick(next);
  };
  return [
    {
      key: "tick",
      title: "Offer",
      width: 70,
      show: (tool) => (
        <Checkbox
          aria-label={`Offer ${visibleText(tool.name)}`}
          checked={ticked.has(tool.name)}
          onChange={() => toggle(tool.name)}
        />
      ),
    },
    { key: "tool", title: "Tool", show: (tool) => <Description tool={tool} /> },
    { key: "effect", title: "Effect", width: 130, show: (tool) => <Effect tool={tool} />, isMinor: true },
    { key: "tokens", title: "Tokens", width: 80, align: "right", show: (tool) => count(tool.tokens) },
  ];
}

function Description({ tool }: { readonly tool: Choosable }) {
  return (
    <>
      <Group gap={6}>
        <Text size="sm" fw={600} span>
          <Untrusted text={tool.name} mono />
        </Text>
        <span className="mantine-hidden-from-md">
          <Effect tool={tool} />
        </span>
      </Group>
      <Text size="sm" c="dimmed" lineClamp={2} component="div">
        <Untrusted text={tool.description} />
      </Text>
    </>
  );
}

function Effect({ tool }: { readonly tool: Choosable }) {
  if (isReadOnly(tool))
    return (
      <Badge color="green" variant="light">
        read-only
      </Badge>
    );
  if (isDestructive(tool))
    return (
      <Badge color="red" variant="light">
        destructive
      </Badge>
    );
  return (
    <Badge color="gray" variant="light" title="Its definition does not say what it changes.">
      may change
    </Badge>
  );
}

function tokensOf(tools: readonly Choosable[]): number {
  return tools.reduce((sum, one) => sum + one.tokens, 0);
}

export function ToolTicks(props: ToolTicksProps) {
  const { tools, ticked, onTick } = props;
  const [text, setText] = useState("");
  const sorted = useMemo(() => byRisk(tools), [tools]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = sorted.filter(({ name, description }) =>
    words.every((one) => `${name}\n${description}`.toLowerCase().includes(one)),
  );
  const chosen = tools.filter((one) => ticked.has(one.name));
  return (
    <Stack gap="xs">
      <Group justify="space-between">
        <Text size="sm" role="status">
          <b>
            {count(chosen.length)} of {count(tools.length)} offered
          </b>
          , about {count(tokensOf(chosen))} of {count(tokensOf(tools))} tokens
        </Text>
        <Group gap="xs" role="group" aria-label="Tick">
          <Button size="xs" variant="default" onClick={() => onTick(usualTicks(tools))}>
            Read-only
          </Button>
          <Button size="xs" variant="default" onClick={() => onTick(new Set(tools.map((one) => one.name)))}>
            All
          </Button>
          <Button size="xs" variant="default" onClick={() => onTick(new Set())}>
            None
          </Button>
        </Group>
      </Group>
      {tools.length > SEARCHED_FROM ? (
        <TextInput
          aria-label="Find a tool to offer"
          placeholder="Find a tool"
          leftSection={<IconSearch size={16} />}
          value={text}
          onChange={(event) => setText(event.currentTarget.value)}
        />
      ) : null}
      <DataTable
        label="Tools to offer"
        rows={shown}
        columns={columnsOf(props)}
        keyOf={(tool) => tool.name}
        empty={<Empty title="No tools match">Clear the search.</Empty>}
      />
    </Stack>
  );
}
