/** The server editor: form or JSON, validation while typing, a connection test, review and save. */
import { Alert, Button, Group, Stack, Switch, Text } from "@mantine/core";
import { useMay } from "@/api/me";
import { LeaveGuard } from "@/parts/leave-guard";
import { Untrusted } from "@/parts/untrusted";
import { FormAccordion } from "./form-accordion";
import { JsonField } from "./json-field";
import { problemAt, unplaced } from "./problems";
import { Review } from "./review";
import type { Body } from "./server-form";
import styles from "./servers.module.css";
import { Trial } from "./trial";
import { type Saved, useEditor } from "./use-editor";

interface EditorProps {
  /** The stored record; null: the server is new. */
  readonly saved: Saved | null;
  /** What the fields of a new server hold at first. */
  readonly typed?: Body;
  readonly onSaved: (serverId: string) => void;
}

/** Scrolls to the first invalid field, once it is shown. */
function focusProblem(form: HTMLFormElement): void {
  form.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
}

export function Editor({ saved, typed, onSaved }: EditorProps) {
  const editor = useEditor(saved, typed);
  const isAdmin = useMay("admin");
  const isNew = saved === null;
  const problem = (path: string) => problemAt(editor.shownProblems, path);
  return (
    <form
      aria-label="Server"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        const { currentTarget } = event;
        if (!editor.review()) requestAnimationFrame(() => focusProblem(currentTarget));
      }}
    >
      <Stack>
        {isAdmin ? null : (
          <Alert color="blue" title="Read-only">
            Servers run programs and hold secrets, so only admins can change them.
          </Alert>
        )}
        <Outdated editor={editor} />
        <Group justify="space-between">
          <Text size="sm" c="dimmed">
            {isNew ? "Nothing is started or saved until you confirm." : "Hidden values (***) are kept."}
          </Text>
          <Switch
            label="JSON"
            checked={editor.json !== null}
            onChange={(event) => editor.turnJson(event.currentTarget.checked)}
          />
        </Group>
        {unplaced(editor.shownProblems).map((one) => (
          <Alert key={one.field + one.problem} color="red">
            <Untrusted text={one.field === "" ? one.problem : `${one.field}: ${one.problem}`} />
          </Alert>
        ))}
        {editor.json === null ? (
          <FormAccordion
            form={editor.form}
            set={editor.set}
            problem={problem}
            isNew={isNew}
            isFixed={!isAdmin}
          />
        ) : (
          <fieldset disabled={!isAdmin} style={{ border: 0, margin: 0, padding: 0, minWidth: 0 }}>
            <JsonField text={editor.json} onChange={editor.setJson} problems={editor.shownProblems} />
          </fieldset>
        )}
        {isAdmin ? (
          <>
            <Trial change={editor.change} onWanted={editor.ask} />
            <Actions editor={editor} isNew={isNew} />
          </>
        ) : null}
      </Stack>
      <LeaveGuard isDirty={editor.isDirty} />
      <Review change={editor.reviewed} etag={editor.etag} onClose={editor.closeReview} onSaved={onSaved} />
    </form>
  );
}

function Actions({
  editor,
  isNew,
}: {
  readonly editor: ReturnType<typeof useEditor>;
  readonly isNew: boolean;
}) {
  const wrong = editor.shownProblems.length;
  return (
    <Group justify="flex-end" py="sm" className={styles.actions}>
      <Text size="sm" c="var(--mantine-color-error)" role="status">
        {wrong === 0 ? "" : wrong === 1 ? "One field is invalid." : `${wrong} fields are invalid.`}
      </Text>
      {isNew ? null : (
        <Button variant="default" disabled={!editor.isDirty} onClick={editor.undo}>
          Discard changes
        </Button>
      )}
      <Button type="submit" disabled={!editor.isDirty}>
        Review and save
      </Button>
    </Group>
  );
}

/** The record was changed meanwhile. The input is kept. */
function Outdated({ editor }: { readonly editor: ReturnType<typeof useEditor> }) {
  if (!editor.isOutdated) return null;
  return (
    <Alert color="yellow" title="Someone else changed this server">
      <Stack gap="xs" align="flex-start">
        <Text size="sm">
          Load their version: fields that you edited keep your input. Review the result before you save.
        </Text>
        <Button size="xs" variant="default" onClick={editor.rebase}>
          Load it, keep my edits
        </Button>
      </Stack>
    </Alert>
  );
}
