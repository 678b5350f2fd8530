/** The decision: approve or deny, with a reason. */
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
      notifications.show({ message: `Call of ${name}: ${decided.state}.` });
      void queries.invalidateQueries({ queryKey: ["approvals"] });
    },
  });
}

export function Decision({ approval }: { readonly approval: Approval }) {
  const me = useMe();
  const [reason, setReason] = useState("");
  const [isMissing, setMissing] = useState(false);
  const decide = useDecide(approval);
  const whyNot = whyNotApprove(approval, me);
  const said = reason.trim();
  useTyped(said !== "");
  const deny = () => (said === "" ? setMissing(true) : decide.mutate({ isApproved: false, reason: said }));
  return (
    <Stack gap="xs">
      <TextInput
        label="Reason"
        description="Required to deny; the caller receives it. Approval reasons are kept in the audit log."
        value={reason}
        onChange={(event) => {
          setReason(event.currentTarget.value);
          setMissing(false);
        }}
        error={isMissing ? "Enter a reason for the denial." : undefined}
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
