/** A confirmation that asks for the name. */
import { Button, Group, Stack, Text, TextInput } from "@mantine/core";
import { type ReactNode, useState } from "react";
import { Failure } from "./states";
import { Untrusted } from "./untrusted";

interface TypedNameProps {
  readonly name: string;
  /** What ends it, as its button says. */
  readonly verb: "Delete" | "Revoke";
  readonly ending: { readonly isError: boolean; readonly error: unknown; readonly isPending: boolean };
  readonly onConfirm: () => void;
  readonly onClose: () => void;
  /** What comes of it. */
  readonly children: ReactNode;
}

export function TypedName({ name, verb, ending, onConfirm, onClose, children }: TypedNameProps) {
  const [typed, setTyped] = useState("");
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (typed === name) onConfirm();
      }}
    >
      <Stack>
        {children}
        <Text component="div">
          To {verb.toLowerCase()} it, type its name: <Untrusted text={name} mono />
        </Text>
        <TextInput
          label="Name"
          value={typed}
          onChange={(event) => setTyped(event.currentTarget.value)}
          data-autofocus
          autoComplete="off"
        />
        {ending.isError ? <Failure error={ending.error} /> : null}
        <Group justify="flex-end">
          <Button variant="default" onClick={onClose}>
            Cancel
          </Button>
          <Button type="submit" color="red" disabled={typed !== name} loading={ending.isPending}>
            {verb}
          </Button>
        </Group>
      </Stack>
    </form>
  );
}
