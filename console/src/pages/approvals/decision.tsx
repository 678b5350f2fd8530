/** The decision: approve or deny, with a reason. All of it by keyboard: afterwards the next approval has the focus. */
import { Button, Group, Stack, Text, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { api, take } from "@/api/client";
import { useMe } from "@/api/me";
import { useTyped } from "@/api/typed";
import { Failure } from "@/parts/states";
import { visibleText } from "@/parts/visible";
import { type Approval, nameOf, whyNotApprove } from "./states";

/** As the gateway takes it. */
const MAX_REASON = 500;

function useDecide(approval: Approval, onDecided: () => void) {
  const queries = useQueryClient();
  const params = { path: { approval_id: approval.approval_id } };
  return useMutation({
    mutationFn: ({ isApproved, reason }: { isApproved: boolean; reason: string }) =>
      isApproved
        ? take(api.POST("/admin/api/approvals/{approval_id}/approve", { params, body: { reason } }))
        : take(api.POST("/admin/api/approvals/{approval_id}/deny", { params, body: { reason } })),
    onSuccess: (decided) => {
      notifications.show({ message: `Call of ${visibleText(nameOf(decided))}: ${decided.state}.` });
      onDecided();
      void queries.invalidateQueries({ queryKey: ["approvals"] });
    },
  });
}

/** Focuses the link of the card after the one that `within` is in, or before it; else the head of the page. */
function focusNext(within: Element | null): void {
  const card = within?.closest("article");
  const link = [card?.nextElementSibling, card?.previousElementSibling]
    .map((one) => one?.querySelector<HTMLElement>("a"))
    .find((one) => one != null);
  const head = document.querySelector<HTMLElement>("main h1");
  if (!link && head) head.tabIndex = -1;
  (link ?? head)?.focus();
}

export function Decision({ approval }: { readonly approval: Approval }) {
  const me = useMe();
  const [reason, setReason] = useState("");
  const [isMissing, setMissing] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const decide = useDecide(approval, () => focusNext(form.current));
  const whyNot = whyNotApprove(approval, me);
  const said = reason.trim();
  useTyped(said !== "");
  const deny = () => {
    if (said !== "") return decide.mutate({ isApproved: false, reason: said });
    setMissing(true);
    field.current?.focus();
  };
  return (
    <form
      ref={form}
      onSubmit={(event) => {
        event.preventDefault();
        // Enter in the field says which decision the reason is for only after Deny was chosen.
        if (isMissing) deny();
      }}
    >
      <Stack gap="xs">
        {decide.isError ? <Failure error={decide.error} /> : null}
        <Group gap="xs" align="flex-start">
          <Button
            disabled={whyNot !== null}
            loading={decide.isPending && decide.variables.isApproved}
            onClick={() => decide.mutate({ isApproved: true, reason: said })}
          >
            Approve
          </Button>
          <Button
            color="red"
            variant="light"
            loading={decide.isPending && !decide.variables.isApproved}
            onClick={deny}
          >
            Deny
          </Button>
          <TextInput
            ref={field}
            aria-label="Reason"
            placeholder="Reason (needed to deny)"
            value={reason}
            onChange={(event) => setReason(event.currentTarget.value)}
            error={
              isMissing && said === "" ? "Enter a reason for the denial. The caller receives it." : undefined
            }
            maxLength={MAX_REASON}
            autoComplete="off"
            style={{ flex: "1 1 240px" }}
          />
        </Group>
        {whyNot === null ? null : (
          <Text size="sm" c="dimmed">
            {whyNot}
          </Text>
        )}
      </Stack>
    </form>
  );
}
