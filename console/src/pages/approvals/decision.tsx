/** Yes or no, and why. */
import { Button, Group, Stack, Text, TextInput } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, take } from "@/api/client";
import { useMe } from "@/api/me";
import { useTyped } from "@/api/typed";
import { Failure } from "@/parts/states";
import { visibleText } from "@/parts/visible";
import { type Approval, whyNotApprove } from "./states";

/** As the gateway takes it. */
const MAX_REASON = 500;

function useDecide(approval: Approval) {
  const queries = useQueryClient();
  const params = { path: { approval_id: approval.approval_id } };
  return useMutation({
    mutationFn: ({ isApproved, reason }: { isApproved: boolean; reason: string }) =>
      isApproved
        ? take(api.POST("/admin/api/approvals/{approval_id}/approve", { params, body: { reason } }))
        : take(api.POST("/admin/api/approvals/{approval_id}/deny", { params, body: { reason } })),
    onSuccess: (decided) => {
      const name = visibleText(`${decided.server_id}.${decided.tool}`);
      notifications.show({ message: `The call of ${name} is ${decided.state}.` });
      void queries.invalidateQueries({ queryKey: ["approvals"] });
    },
  });
}

export function Decision({ approval }: { readonly approval: Approval }) {
  const me = useMe();
  const [reason, setReason] = useState("");
  const [isUnsaid, setUnsaid] = useState(false);
  const decide = useDecide(approval);
  const whyNot = whyNotApprove(approval, me);
  const said = reason.trim();
  useTyped(said !== "");
  const deny = () => (said === "" ? setUnsaid(true) : decide.mutate({ isApproved: false, reason: said }));
  return (
    <Stack gap="xs">
      <TextInput
        label="Reason"
        description="Needed to deny: whoever asked is told. Of an approval, the audit keeps it."
        value={reason}
        onChange={(event) => {
          setReason(event.currentTarget.value);
          setUnsaid(false);
        }}
        error={isUnsaid ? "Say why it is denied." : undefined}
        maxLength={MAX_REASON}
        autoComplete="off"
      />
      {decide.isError ? <Failure error={decide.error} /> : null}
      <Group gap="xs">
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
        {whyNot === null ? null : (
          <Text size="sm" c="dimmed">
            {whyNot}
          </Text>
        )}
      </Group>
    </Stack>
  );
}
