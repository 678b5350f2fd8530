/** One key: its ceiling, quotas, history, and revocation. */
import { Button, Modal, Stack, Text, Title } from "@mantine/core";
import { IconTrash } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate, useParams } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { useMay, useMe } from "@/api/me";
import { BudgetUses } from "@/parts/budget-uses";
import { FactRow, FactTable } from "@/parts/facts";
import { Entries } from "@/parts/history-panel";
import { PageHead } from "@/parts/page-head";
import { Loaded } from "@/parts/states";
import { moment } from "@/parts/time";
import { TypedName } from "@/parts/typed-name";
import { Untrusted } from "@/parts/untrusted";
import { Expiry, Role } from "./key-list";

export function KeyPage() {
  const { keyId = "" } = useParams();
  const mayWrite = useMay("admin");
  const navigate = useNavigate();
  const [isRevoking, setRevoking] = useState(false);
  const params = { path: { key_id: keyId } };
  const key = useQuery({
    queryKey: ["key", keyId],
    queryFn: () => take(api.GET("/admin/api/keys/{key_id}", { params })),
    enabled: !isRevoking,
  });
  return (
    <>
      <PageHead title={keyId} about="An API key. Its secret was shown once and is not stored.">
        {mayWrite && key.data ? (
          <Button
            color="red"
            variant="light"
            leftSection={<IconTrash size={16} />}
            onClick={() => setRevoking(true)}
          >
            Revoke
          </Button>
        ) : null}
      </PageHead>
      <Loaded query={key} what="Loading the key">
        {(found) => (
          <Stack>
            <Facts found={found} />
            <Title order={2} size="h4">
              History
            </Title>
            <History keyId={keyId} />
          </Stack>
        )}
      </Loaded>
      <Modal opened={isRevoking} onClose={() => setRevoking(false)} title="Revoke key">
        <Revocation
          keyId={keyId}
          onKept={() => setRevoking(false)}
          onGone={() => void navigate("/keys", { replace: true })}
        />
      </Modal>
    </>
  );
}

function Facts({ found }: { readonly found: Shapes["KeyShown"] }) {
  const { ceiling } = found;
  return (
    <FactTable>
      <FactRow name="Role">
        <Role role={found.role} />
      </FactRow>
      <FactRow name="Allowed tasks">
        <Names names={ceiling.tasks} />
      </FactRow>
      <FactRow name="Allowed servers">
        <Names names={ceiling.servers} />
      </FactRow>
      <FactRow name="Allowed tools">
        <Names names={ceiling.allow} />
      </FactRow>
      <FactRow name="Denied tools">
        <Names names={ceiling.deny} none="none" />
      </FactRow>
      <FactRow name="Default task">
        {found.default_task == null ? "–" : <Untrusted text={found.default_task} mono />}
      </FactRow>
      <FactRow name="Default for integrations">{found.integrations.replace("_", "-")}</FactRow>
      <FactRow name="Expires">
        <Expiry at={found.expires_at_s} />
        {found.expires_at_s == null ? null : ` (${moment(found.expires_at_s * 1000)})`}
      </FactRow>
      <FactRow name="Rate limits and quotas">
        <BudgetUses of={{ kind: "key", id: found.key_id }} />
      </FactRow>
    </FactTable>
  );
}

function Names({
  names,
  none = "none",
}: {
  readonly names?: readonly string[] | null;
  readonly none?: string;
}) {
  if (names == null) return "all";
  return names.length === 0 ? none : <Untrusted text={names.join(", ")} mono />;
}

function History({ keyId }: { readonly keyId: string }) {
  const params = { path: { key_id: keyId } };
  const query = useQuery({
    queryKey: ["key", keyId, "history"],
    queryFn: () => take(api.GET("/admin/api/keys/{key_id}/history", { params })),
  });
  return (
    <Loaded query={query} what="Loading the history">
      {({ entries }) => <Entries entries={entries} />}
    </Loaded>
  );
}

interface RevocationProps {
  readonly keyId: string;
  readonly onKept: () => void;
  readonly onGone: () => void;
}

function Revocation({ keyId, onKept, onGone }: RevocationProps) {
  const me = useMe();
  const queries = useQueryClient();
  const revoke = useMutation({
    mutationFn: () => take(api.DELETE("/admin/api/keys/{key_id}", { params: { path: { key_id: keyId } } })),
    onSuccess: () => {
      void queries.invalidateQueries({ queryKey: ["key", "all"] });
      onGone();
    },
  });
  return (
    <TypedName name={keyId} verb="Revoke" ending={revoke} onConfirm={() => revoke.mutate()} onClose={onKept}>
      <Text>Requests with this key fail from then on, in open sessions too.</Text>
      {me.by === "key" && me.principal === `key:${keyId}` ? (
        <Text c="var(--mantine-color-error)">You are logged in with this key.</Text>
      ) : null}
    </TypedName>
  );
}
