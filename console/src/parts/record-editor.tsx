/** The frame of an editor: the fields, the plan, and the button that applies it. */
import { Alert, Button, Card, Grid, Group, Stack, Text, Title } from "@mantine/core";
import type { ReactNode } from "react";
import { LeaveGuard } from "./leave-guard";
import { PlanPanel } from "./plan-panel";
import classes from "./record-editor.module.css";
import { Failure, Skeletons } from "./states";
import { type Change, spoken, usePlan } from "./use-plan";
import { useWriting } from "./use-writing";

interface RecordEditorProps {
  readonly change: Change;
  readonly isNew: boolean;
  readonly isDirty: boolean;
  readonly isOutdated: boolean;
  readonly onRebase: () => void;
  /** Writes what the plan showed. */
  readonly save: (plan: string) => Promise<{ readonly warnings: readonly string[] }>;
  readonly onSaved: () => void;
  readonly onCancel: () => void;
  readonly children: ReactNode;
}

export function RecordEditor(props: RecordEditorProps) {
  const { change, isNew, isDirty, isOutdated, onRebase, children } = props;
  return (
    <Grid gap="lg">
      <LeaveGuard isDirty={isDirty} />
      <Grid.Col span={{ base: 12, lg: 7 }}>
        <Stack gap="md">
          {isOutdated ? <Outdated onRebase={onRebase} /> : null}
          {children}
        </Stack>
      </Grid.Col>
      <Grid.Col span={{ base: 12, lg: 5 }}>
        <Card withBorder padding="md" component="section" aria-label="Plan" className={classes.plan}>
          <Title order={2} size="h4" mb="sm">
            {isNew ? `What this ${spoken(change.kind)} would do` : "What this change would do"}
          </Title>
          {change.id === "" ? <Text c="dimmed">Enter a name first.</Text> : <PlanAndSave {...props} />}
        </Card>
      </Grid.Col>
    </Grid>
  );
}

function Outdated({ onRebase }: { readonly onRebase: () => void }) {
  return (
    <Alert color="yellow" title="Someone else changed this record" role="alert">
      <Stack gap="xs" align="flex-start">
        <Text size="sm">Fields that you edited keep your input; all others are loaded again.</Text>
        <Button size="xs" variant="default" onClick={onRebase}>
          Load their version
        </Button>
      </Stack>
    </Alert>
  );
}

function PlanAndSave(props: RecordEditorProps) {
  const { change, isNew, isDirty, isOutdated, save, onSaved, onCancel } = props;
  const plan = usePlan(change);
  const saving = useWriting({ kind: change.kind, write: save, onWritten: onSaved });
  const isTaken = isNew && plan.isCurrent && plan.data?.changes[0]?.operation !== "added";
  const isReady = plan.isCurrent && isDirty && !isOutdated && !isTaken && plan.data?.changes.length !== 0;
  return (
    <>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by keyboard */}
      <section className={classes.shown} aria-label="Effects" tabIndex={0}>
        {plan.isError ? <Failure error={plan.error} /> : null}
        {isTaken ? <Alert color="red">Duplicate {spoken(change.kind)} name.</Alert> : null}
        {plan.data && !plan.isError ? (
          <PlanPanel plan={plan.data} />
        ) : plan.isError ? null : (
          <Skeletons what="Planning" />
        )}
      </section>
      {saving.isError ? <Failure error={saving.error} /> : null}
      <Group justify="flex-end" mt="md">
        <Button variant="default" onClick={onCancel}>
          Cancel
        </Button>
        <Button
          disabled={!isReady}
          loading={saving.isPending}
          onClick={() => plan.data && saving.mutate(plan.data.id)}
        >
          {isNew ? `Create ${spoken(change.kind)}` : "Save"}
        </Button>
      </Group>
    </>
  );
}
