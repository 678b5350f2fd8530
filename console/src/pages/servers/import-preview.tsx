/** What an import would do: with each definition, and to every task. */
import { Badge, Button, Card, Checkbox, Group, Stack, Text, Title } from "@mantine/core";
import { type Column, DataTable } from "@/parts/data-table";
import { FieldDiff } from "@/parts/diff-view";
import { PlanPanel } from "@/parts/plan-panel";
import { Prose } from "@/parts/prose";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { type Found, type ImportResponse, toFound } from "./imports";

interface ImportPreviewProps {
  readonly answer: ImportResponse;
  /** The dry run of everything. */
  readonly whole: ImportResponse;
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
  changed: "replace",
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
      show: (one) => (
        <>
          <Untrusted text={one.name} mono />
          {one.was === "" ? null : (
            <Text size="sm" c="dimmed" component="div">
              in the file: <Untrusted text={one.was} />
            </Text>
          )}
        </>
      ),
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
              <Prose text={one.reason} />
            </Text>
          ) : null}
          {one.replaced.length > 0 ? (
            <>
              <Text size="sm">
                {one.outcome === "changed"
                  ? "Replaces the stored record:"
                  : "A server with this ID exists. Tick it to replace its record:"}
              </Text>
              <FieldDiff fields={one.replaced} />
            </>
          ) : null}
        </Stack>
      ),
    },
  ];
}

/** The plan says so itself, and the result leads to the choice. */
function isOfTools(warning: string): boolean {
  return warning.startsWith("no tools are allowed of ");
}

export function ImportPreview(props: ImportPreviewProps) {
  const { answer, whole, left, onLeave, isCurrent, isPending, onApply } = props;
  const { plan, effect } = answer;
  const number = answer.changes.length;
  const label = number === 1 ? "Import 1 server" : `Import ${number} servers`;
  return (
    <Card withBorder component="section" aria-label="Plan">
      <Stack>
        <Title order={2} size="h4">
          Plan
        </Title>
        <DataTable
          label="Definitions"
          rows={toFound(answer, left, whole)}
          columns={columnsOf(left, onLeave)}
          keyOf={(one) => `${one.canBePicked} ${one.name}`}
        />
        {effect ? (
          <PlanPanel plan={{ ...effect, warnings: answer.warnings.filter((one) => !isOfTools(one)) }} />
        ) : null}
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
