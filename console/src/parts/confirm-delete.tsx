/** Confirms a deletion: shows its plan, and asks for the name. */
import { Modal } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { PlanPanel } from "./plan-panel";
import { Loaded } from "./states";
import { TypedName } from "./typed-name";
import { type Change, spoken, usePlan } from "./use-plan";

interface ConfirmDeleteProps {
  readonly kind: Change["kind"];
  readonly id: string;
  readonly isOpen: boolean;
  readonly onClose: () => void;
  /** Gets the id of the plan that was shown. */
  readonly remove: (plan: string) => Promise<unknown>;
  readonly onRemoved: () => void;
}

export function ConfirmDelete(props: ConfirmDeleteProps) {
  const { kind, id, isOpen, onClose } = props;
  return (
    <Modal opened={isOpen} onClose={onClose} title={`Delete ${spoken(kind)}`} size="lg">
      {isOpen ? <Confirmation {...props} key={id} /> : null}
    </Modal>
  );
}

function Confirmation({ kind, id, onClose, remove, onRemoved }: ConfirmDeleteProps) {
  const plan = usePlan({ kind, id, body: null });
  const removal = useMutation({ mutationFn: remove, onSuccess: onRemoved });
  return (
    <Loaded query={plan} what="Computing the plan">
      {(shown) => (
        <TypedName
          name={id}
          verb="Delete"
          ending={removal}
          onConfirm={() => removal.mutate(shown.id)}
          onClose={onClose}
        >
          <PlanPanel plan={shown} />
        </TypedName>
      )}
    </Loaded>
  );
}
