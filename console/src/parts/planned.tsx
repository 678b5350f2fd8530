/** The review of a change: its plan, and the button that applies it. */
import { Button, Group, Stack } from "@mantine/core";
import { PlanPanel } from "./plan-panel";
import { Failure, Loaded } from "./states";
import { type Change, type Return, usePlan } from "./use-plan";
import { useWriting } from "./use-writing";

interface PlannedProps {
  readonly change: Change | Return;
  /** How many tools of a new server are ticked, if that is known. */
  readonly offered?: number;
  /** Gets the id of the plan that was shown. */
  readonly write: (plan: string) => Promise<{ readonly warnings: readonly string[] }>;
  readonly onWritten: () => void;
  readonly onClose: () => void;
  /** What the buttons say: the one that makes the change, and the one that does not. */
  readonly yes: string;
  readonly no: string;
}

export function Planned({ change, offered, write, onWritten, onClose, yes, no }: PlannedProps) {
  const plan = usePlan(change);
  const writing = useWriting({ kind: change.kind, write, onWritten });
  return (
    <Loaded query={plan} what="Computing the plan">
      {(shown) => (
        <Stack>
          <PlanPanel plan={shown} offered={offered} />
          {writing.isError ? <Failure error={writing.error} /> : null}
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {no}
            </Button>
            <Button
              data-autofocus
              loading={writing.isPending}
              disabled={!plan.isCurrent}
              onClick={() => writing.mutate(shown.id)}
            >
              {yes}
            </Button>
          </Group>
        </Stack>
      )}
    </Loaded>
  );
}
