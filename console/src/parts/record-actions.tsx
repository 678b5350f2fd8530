/** The actions of a record's page: scope lens, delete, edit. */
import { Button } from "@mantine/core";
import { IconFocus2, IconPencil, IconTrash } from "@tabler/icons-react";
import { useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link, useNavigate } from "react-router";
import { type Role, useMay } from "@/api/me";
import { ConfirmDelete } from "./confirm-delete";
import { Empty } from "./states";
import type { Change } from "./use-plan";
import { useRefresh } from "./use-writing";

interface RecordActionsProps {
  readonly kind: Change["kind"];
  readonly id: string;
  /** The page of all of its kind; its own is below it. */
  readonly home: string;
  /** Where the scope lens looks at it, where it does. */
  readonly lens?: string;
  /** The role that may write it. */
  readonly writer: Role;
  /** Gets the id of the plan that was shown. */
  readonly remove: (plan: string) => Promise<unknown>;
}

export function RecordActions(props: RecordActionsProps) {
  const mayWrite = useMay(props.writer);
  return (
    <>
      {props.lens === undefined ? null : (
        <Button component={Link} to={props.lens} variant="default" leftSection={<IconFocus2 size={16} />}>
          Scope lens
        </Button>
      )}
      {mayWrite ? <Writing {...props} /> : null}
    </>
  );
}

function Writing({ kind, id, home, remove }: RecordActionsProps) {
  const [isDeleting, setDeleting] = useState(false);
  const navigate = useNavigate();
  const queries = useQueryClient();
  const refresh = useRefresh(kind);
  const onRemoved = async () => {
    await navigate(home);
    queries.removeQueries({ queryKey: [kind, id] });
    await refresh();
  };
  return (
    <>
      <Button variant="default" leftSection={<IconTrash size={16} />} onClick={() => setDeleting(true)}>
        Delete
      </Button>
      <Button
        component={Link}
        to={`${home}/${encodeURIComponent(id)}/edit`}
        leftSection={<IconPencil size={16} />}
      >
        Edit
      </Button>
      <ConfirmDelete
        kind={kind}
        id={id}
        isOpen={isDeleting}
        onClose={() => setDeleting(false)}
        remove={remove}
        onRemoved={onRemoved}
      />
    </>
  );
}

interface MayWriteProps {
  readonly what: string;
  readonly needs: Role;
  readonly children: ReactNode;
}

/** A page for roles that may write; others get a message. */
export function MayWrite({ what, needs, children }: MayWriteProps) {
  if (useMay(needs)) return children;
  return <Empty title={`You cannot edit ${what}`}>This requires the role {needs}.</Empty>;
}
