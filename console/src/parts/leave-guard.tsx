/** Asks before unsaved input is lost, and keeps it if the login ends. */
import { Button, Group, Modal, Stack, Text } from "@mantine/core";
import { useEffect } from "react";
import { useBlocker } from "react-router";
import { useTyped } from "@/api/typed";

/** The state of a location that one is led to because everything is saved. */
export const SAVED = "saved";

interface LeaveGuardProps {
  readonly isDirty: boolean;
  readonly question?: string;
  readonly about?: string;
}

export function LeaveGuard({
  isDirty,
  question = "Leave without saving?",
  about = "Unsaved changes would be lost.",
}: LeaveGuardProps) {
  useTyped(isDirty);
  useEffect(() => {
    if (!isDirty) return;
    const hold = (event: BeforeUnloadEvent) => event.preventDefault();
    window.addEventListener("beforeunload", hold);
    return () => window.removeEventListener("beforeunload", hold);
  }, [isDirty]);
  // Only then: the router warns of every blocker it meets when the address changes without it.
  return isDirty ? <Blocker question={question} about={about} /> : null;
}

function Blocker({ question, about }: Required<Omit<LeaveGuardProps, "isDirty">>) {
  const blocker = useBlocker(
    ({ currentLocation, nextLocation }) =>
      currentLocation.pathname !== nextLocation.pathname && nextLocation.state !== SAVED,
  );
  return (
    <Modal opened={blocker.state === "blocked"} onClose={() => blocker.reset?.()} title={question}>
      <Stack>
        <Text>{about}</Text>
        <Group justify="flex-end">
          <Button variant="default" onClick={() => blocker.reset?.()} data-autofocus>
            Stay
          </Button>
          <Button color="red" onClick={() => blocker.proceed?.()}>
            Leave
          </Button>
        </Group>
      </Stack>
    </Modal>
  );
}
