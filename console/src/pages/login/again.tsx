/** The login has ended while something was typed: over the page, which stays as it is, one logs in again. */
import { Alert, Button, Modal } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import type { Shapes } from "@/api/client";
import { leave } from "@/api/leave";
import { openAside } from "@/parts/elsewhere";
import { Failure } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { LoginCard } from ".";
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
          <Alert color="yellow" title="What you have typed is kept">
            Your login as <Untrusted text={as.principal} mono /> has ended. Log in, and go on where you were.
          </Alert>
          {/* In a tab of its own: this one would not come back with what is typed. */}
          <Ways go={openAside} />
          {finish.isError ? <Failure error={finish.error} /> : null}
          <Button variant="subtle" color="gray" onClick={() => void leave(queries)}>
            Forget what I typed
          </Button>
        </LoginCard>
      </Modal.Content>
    </Modal.Root>
  );
}
