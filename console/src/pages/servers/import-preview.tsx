/** What an import would do: with each definition, and to every task. */
import { Badge, Button, Card, Checkbox, Group, Stack, Text, Title } from "@mantine/core";
import { type Column, DataTable } from "@/parts/data-table";
import { PlanPanel } from "@/parts/plan-panel";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { type Found, type ImportResponse, toFound } from "./imports";

interface ImportPreviewProps {
  readonly answer: ImportResponse;
  /** The IDs that are not selected. */
  readonly left: ReadonlySet<string>;
  readonly onLeave: (left: ReadonlySet<string>) => void;
  /** Whether the preview is of the current input. */
  readonly isCurrent: boolean;
  readonly isPending: boolean;
  readonly onApply: (plan: string) => void;
}

const COLOURS: Readonly<Record<Found["outcome"], string>> = {
  added: "green",
  changed: "blue",
  same: "gray",
  skipped: "gray",
  refused: "red",
};
const WORDS: Readonly<Record<Found["outcome"], string>> = {
  added: "add",
  changed: "change",
  same: "unchanged",
  skipped: "skipped",
  refused: "cannot be imported",
};

function columnsOf(left: ReadonlySet<string>, onLeave: (left: ReadonlySet<string>) => void): Column<Found>[] {
  const toggle = (name: string) => {
    const next = new Set(left);
    if (!next.delete(name)) next.add(name);
    onLeave(next);
  };
  return [
    {
      key: "pick",
      title: "Select",
      width: 70,
      show: (one) => (
        <Checkbox
          aria-label={`Select ${visibleText(one.name)}`}
          checked={one.canBePicked && !left.has(one.name)}
          disabled={!one.canBePicked}
          onChange={() => toggle(one.name)}
        />
      ),
    },
    {
      key: "name",
      title: "Server",
      show: (one) => <Untrusted text={one.name} mono />,
      sortBy: (one) => one.name,
    },
    {
      key: "outcome",
      title: "Result",
      sortBy: (one) => one.outcome,
      show: (one) => (
        <Stack gap={2} align="flex-start">
          <Badge color={COLOURS[one.outcome]} variant="light" tt="none">
            {WORDS[one.outcome]}
          </Badge>
          {one.reason ? (
            <Text size="sm" component="div">
              <Untrusted text={one.reason} />
            </Text>
          ) : null}
        </Stack>
      ),
    },
  ];
}

export function ImportPreview({ answer, left, onLeave, isCurrent, isPending, onApply }: ImportPreviewProps) {
  const { plan, effect } = answer;
  const number = answer.changes.length;
  const label = number === 1 ? "Import 1 server" : `Import ${number} servers`;
  return (
    <Card withBorder component="section" aria-label="Plan">
      <Stack>
        <Title order={2} size="h4">
          Plan
        </Title>
        {isCurrent ? null : <Text c="dimmed">The input changed. Preview it again.</Text>}
        <DataTable
          label="Definitions"
          rows={toFound(answer, left)}
          columns={columnsOf(left, onLeave)}
          keyOf={(one) => `${one.canBePicked} ${one.name}`}
        />
        {effect ? <PlanPanel plan={{ ...effect, warnings: answer.warnings }} /> : null}
        <Group justify="flex-end">
          <Button
            disabled={!isCurrent || number === 0 || plan === null}
            loading={isPending}
            onClick={() => plan !== null && onApply(plan)}
          >
            {label}
          </Button>
        </Group>
      </Stack>
    </Card>
  );
}
