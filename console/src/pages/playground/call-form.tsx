/** The arguments of a call: a form made of the tool's schema, or JSON. */
import { Button, Group, SegmentedControl, Stack, Text, Textarea } from "@mantine/core";
import { IconPlayerPlay, IconPlayerStop, IconWand } from "@tabler/icons-react";
import { useState } from "react";
import { MemberFields } from "@/parts/schema-form";
import type { Field } from "@/parts/schema-form-model";
import { ROOT } from "@/parts/schema-form-write";
import { isSame } from "@/parts/use-draft";
import { begin, fill, hasForm, hasSuggestions, type Typed, toForm, toJson } from "./arguments";

interface CallFormProps extends ArgumentsProps {
  readonly isReadOnly: boolean;
  /** Whether calls can be made here. */
  readonly isPossible: boolean;
  readonly isRunning: boolean;
  readonly onCall: () => void;
  /** Undefined: it cannot be stopped from here. */
  readonly onStop: (() => void) | undefined;
}

export function CallForm(props: CallFormProps) {
  const { isReadOnly, isPossible, isRunning, onCall, onStop, troubles } = props;
  return (
    <form
      aria-label="Call"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        onCall();
      }}
    >
      <Stack>
        <Arguments {...props} />
        {troubles.size > 0 && !(props.typed.mode === "json" && troubles.has(ROOT)) ? (
          <Text size="sm" c="var(--mantine-color-error)" role="alert">
            {troubles.get(ROOT) ??
              (troubles.size === 1 ? "One field is invalid." : `${troubles.size} fields are invalid.`)}
          </Text>
        ) : null}
        {isPossible ? (
          <Group>
            <Button type="submit" loading={isRunning} leftSection={<IconPlayerPlay size={16} />}>
              Call tool
            </Button>
            {isRunning && onStop ? (
              <Button variant="default" leftSection={<IconPlayerStop size={16} />} onClick={onStop}>
                Stop
              </Button>
            ) : null}
            <Text size="sm" c="dimmed" style={{ flex: "1 1 220px" }}>
              This is a real call{isReadOnly ? "" : ", and the tool may change data"}. Policy, pins, approvals
              and audit apply.
            </Text>
          </Group>
        ) : null}
      </Stack>
    </form>
  );
}

interface ArgumentsProps {
  readonly field: Field;
  readonly typed: Typed;
  readonly setTyped: (typed: Typed) => void;
  readonly troubles: ReadonlyMap<string, string>;
}

function Arguments({ field, typed, setTyped, troubles }: ArgumentsProps) {
  const [isStuck, setStuck] = useState(false);
  const turn = (mode: string) => {
    const next = mode === "json" ? toJson(field, typed) : toForm(field, typed);
    setStuck(next === null);
    if (next !== null) setTyped(next);
  };
  const suggested = fill(field, typed);
  return (
    <Stack gap="sm">
      <Group justify="space-between" gap="xs">
        {hasForm(field) ? (
          <SegmentedControl
            aria-label="Argument input"
            value={typed.mode}
            data={[
              { value: "form", label: "Form" },
              { value: "json", label: "JSON" },
            ]}
            onChange={turn}
          />
        ) : (
          <span />
        )}
        <Group gap="xs">
          {hasSuggestions(field) ? (
            <Button
              variant="default"
              size="xs"
              leftSection={<IconWand size={14} />}
              disabled={suggested === typed}
              onClick={() => setTyped(suggested)}
            >
              Fill in examples
            </Button>
          ) : null}
          <Button
            variant="subtle"
            color="gray"
            size="xs"
            disabled={isSame(typed, begin(field))}
            onClick={() => setTyped(begin(field))}
          >
            Clear
          </Button>
        </Group>
      </Group>
      {isStuck ? (
        <Text size="sm" role="status">
          The form cannot show all of these arguments. Edit them as JSON.
        </Text>
      ) : null}
      {typed.mode === "json" ? (
        <Textarea
          label="Arguments"
          value={typed.text}
          onChange={(event) => {
            setStuck(false);
            setTyped({ mode: "json", text: event.currentTarget.value });
          }}
          error={troubles.get(ROOT)}
          autosize
          minRows={6}
          maxRows={24}
          classNames={{ input: "mono" }}
          spellCheck={false}
        />
      ) : (
        <FormArguments field={field} typed={typed} setTyped={setTyped} troubles={troubles} />
      )}
    </Stack>
  );
}

function FormArguments({ field, typed, setTyped, troubles }: ArgumentsProps) {
  if (field.kind !== "group" || typed.mode !== "form") return null;
  if (field.members.length === 0) return <Text c="dimmed">This tool has no arguments.</Text>;
  const drafts = typed.draft && "members" in typed.draft ? typed.draft.members : [];
  return (
    <MemberFields
      members={field.members}
      drafts={drafts}
      onChange={(members) => setTyped({ mode: "form", draft: { members } })}
      at={ROOT}
      troubles={troubles}
    />
  );
}
