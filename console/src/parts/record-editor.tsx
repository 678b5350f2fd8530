/** The frame of an editor: the fields, their effect, and the review that saves them. */
import { Alert, Button, Card, Grid, Group, Modal, Stack, Text, Title } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { LeaveGuard } from "./leave-guard";
import { PlanPanel } from "./plan-panel";
import { Planned } from "./planned";
import classes from "./record-editor.module.css";
import { Failure, Skeletons } from "./states";
import { type Change, spoken, usePlan } from "./use-plan";

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
          <Effect {...props} />
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

/** The plan as one types, and the review with the same plan. */
function Effect(props: RecordEditorProps) {
  const { change, isNew, isDirty, isOutdated, onCancel } = props;
  const [isReviewed, setReviewed] = useState(false);
  const isNamed = change.id !== "";
  const plan = usePlan(isNamed ? change : null);
  const isTaken = isNew && plan.isCurrent && plan.data?.changes[0]?.operation !== "added";
  const isReady = plan.isCurrent && isDirty && !isOutdated && !isTaken && plan.data?.changes.length !== 0;
  return (
    <Stack gap="md">
      <Group gap="xs">
        <Button disabled={!isReady} onClick={() => setReviewed(true)}>
          Review and save
        </Button>
        <Button variant="default" onClick={onCancel}>
          Cancel
        </Button>
      </Group>
      {isNamed ? null : <Text c="dimmed">Enter a name first.</Text>}
      {plan.isError ? <Failure error={plan.error} /> : null}
      {isTaken ? (
        <Alert color="red" role="alert">
          A {spoken(change.kind)} of this name exists already. Choose another name.
        </Alert>
      ) : null}
      {isNamed && !plan.isError ? (
        plan.data ? (
          <PlanPanel plan={plan.data} />
        ) : (
          <Skeletons what="Computing the plan" rows={2} />
        )
      ) : null}
      <Review {...props} isOpen={isReviewed} onClose={() => setReviewed(false)} />
    </Stack>
  );
}

interface ReviewProps extends RecordEditorProps {
  readonly isOpen: boolean;
  readonly onClose: () => void;
}

function Review({ change, isNew, isOutdated, onRebase, save, onSaved, isOpen, onClose }: ReviewProps) {
  const title = isNew ? `Create this ${spoken(change.kind)}` : "Save these changes";
  return (
    <Modal opened={isOpen} onClose={onClose} title={title} size="xl">
      {isOpen && isOutdated ? (
        <Outdated
          onRebase={() => {
            onRebase();
            onClose();
          }}
        />
      ) : isOpen ? (
        <Planned
          change={change}
          write={save}
          onWritten={onSaved}
          onClose={onClose}
          yes="Save"
          no="Keep editing"
        />
      ) : null}
    </Modal>
  );
}
