/** The login over a page with unsaved input, after the session has expired. The page stays mounted. */
import { Alert, Button, Modal } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import type { Shapes } from "@/api/client";
import { leave } from "@/api/leave";
import { openAside } from "@/parts/elsewhere";
import { Untrusted } from "@/parts/untrusted";
import { LoginCard } from ".";
import { LoginFailure } from "./failure";
import { awaitAnswer } from "./other-tab";
import { useFinish } from "./use-enter";
import { Ways } from "./ways";

/** Above every dialog of the page. */
const ABOVE = 1_000;

export function LoginAgain({ as }: { readonly as: Shapes["MeShown"] }) {
  const queries = useQueryClient();
  const finish = useMutation({ mutationFn: useFinish() });
  const { mutate } = finish;
  useEffect(() => awaitAnswer(mutate), [mutate]);
  return (
    <Modal.Root
      opened
      onClose={() => undefined}
      fullScreen
      closeOnEscape={false}
      zIndex={ABOVE}
      transitionProps={{ duration: 0 }}
    >
      <Modal.Content aria-label="Log in again">
        <LoginCard title="Log in again">
          <Alert color="yellow" title="Your input is kept">
            Your login as <Untrusted text={as.principal} mono /> was revoked or has expired. Log in to
            continue.
          </Alert>
          {/* In another tab: this one would lose the input. */}
          <Ways go={openAside} />
          {finish.isError ? <LoginFailure error={finish.error} /> : null}
          <Button variant="subtle" color="gray" onClick={() => void leave(queries)}>
            Discard my input
          </Button>
        </LoginCard>
      </Modal.Content>
    </Modal.Root>
  );
}
