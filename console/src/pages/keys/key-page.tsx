/** One key: its reach, ceiling and quotas, its calls, the settings of its clients, its history, and revocation. */
import { Alert, Anchor, Button, Card, Modal, Stack, Text, Title } from "@mantine/core";
import { IconFocus2, IconTrash } from "@tabler/icons-react";
import { queryOptions, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Link, useNavigate, useParams } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { useMay, useMe } from "@/api/me";
import { BudgetUses } from "@/parts/budget-uses";
import { ConnectPanel } from "@/parts/connect-panel";
import { FactRow, FactTable } from "@/parts/facts";
import { Entries } from "@/parts/history-panel";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { ago, moment } from "@/parts/time";
import { TypedName } from "@/parts/typed-name";
import { Untrusted } from "@/parts/untrusted";
import { EventTable } from "../activity/event-table";
import { nearness, reachOf, taskOf } from "./key-draft";
import { Expiry, LastUse, Reach, Role } from "./key-facts";
import { CHANGED, usageQuery } from "./queries";

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
          <>
            <Button
              component={Link}
              to={`/scope?${new URLSearchParams({ key: keyId })}`}
              variant="default"
              leftSection={<IconFocus2 size={16} />}
            >
              Scope lens
            </Button>
            <Button
              color="red"
              variant="light"
              leftSection={<IconTrash size={16} />}
              onClick={() => setRevoking(true)}
            >
              Revoke
            </Button>
          </>
        ) : null}
      </PageHead>
      <Loaded query={key} what="Loading the key">
        {(found) => (
          <Stack gap="lg">
            <Expired found={found} />
            <Facts found={found} />
            {found.role === "node" ? null : <Setup found={found} />}
            <Calls keyId={keyId} />
            <Part title="History">
              <History keyId={keyId} />
            </Part>
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

function Part({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  return (
    <section aria-label={title}>
      <Title order={2} size="h4" mb="xs">
        {title}
      </Title>
      {children}
    </section>
  );
}

function Expired({ found }: { readonly found: Shapes["KeyShown"] }) {
  const mayWrite = useMay("admin");
  const at = found.expires_at_s;
  if (at == null || nearness(at, Date.now()) !== "over") return null;
  return (
    <Alert color="red" title={`This key expired ${ago(at * 1000)}`}>
      <Stack gap="xs" align="flex-start">
        <Text size="sm">
          The gateway rejects every request with it. Hand over another key, and revoke this one.
        </Text>
        {mayWrite ? (
          <Button
            component={Link}
            to={`/keys/-/hand-over?${new URLSearchParams({ task: taskOf(found) })}`}
            size="xs"
            variant="default"
          >
            Hand over another key
          </Button>
        ) : null}
      </Stack>
    </Alert>
  );
}

function Facts({ found }: { readonly found: Shapes["KeyShown"] }) {
  const usages = useQuery(usageQuery(found.key_id)).data;
  const usage = usages?.byKey.get(found.key_id);
  return (
    <FactTable>
      <FactRow name="Role">
        <Role role={found.role} />
      </FactRow>
      <FactRow name="Tools">
        <Reach keyId={found.key_id} usages={usages} isLong />
      </FactRow>
      <FactRow name="Ceiling">
        <Untrusted text={reachOf(found.ceiling)} />
      </FactRow>
      <FactRow name="Default task">
        {found.default_task == null ? (
          "–"
        ) : (
          <Anchor component={Link} to={`/tasks/${encodeURIComponent(found.default_task)}`}>
            <Untrusted text={found.default_task} mono />
          </Anchor>
        )}
      </FactRow>
      <FactRow name="Default for integrations">{found.integrations.replace("_", "-")}</FactRow>
      <FactRow name="Created">
        <Created keyId={found.key_id} changedMs={usage?.changed_at_ms} />
      </FactRow>
      <FactRow name="Last used">
        <LastUse keyId={found.key_id} usages={usages} />
      </FactRow>
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

function historyQuery(keyId: string) {
  const params = { path: { key_id: keyId } };
  return queryOptions({
    queryKey: ["key", keyId, "history"],
    queryFn: () => take(api.GET("/admin/api/keys/{key_id}/history", { params })),
  });
}

/** By its history, as far as that is kept; else all that is known is its last change. */
function Created({ keyId, changedMs }: { readonly keyId: string; readonly changedMs: number | undefined }) {
  const first = useQuery(historyQuery(keyId)).data?.entries.at(-1);
  // Later changes are of its quotas alone.
  if (first?.fields.some((one) => one.field === "role"))
    return (
      <>
        <span title={moment(first.at_ms)}>{ago(first.at_ms)}</span> by <Untrusted text={first.actor} mono />
      </>
    );
  return changedMs === undefined ? "…" : `before ${moment(changedMs)}`;
}

function Setup({ found }: { readonly found: Shapes["KeyShown"] }) {
  const task = taskOf(found);
  return (
    <Part title="Settings for its clients">
      <Card withBorder maw={820}>
        <ConnectPanel task={task === "" ? undefined : task} needs_key />
      </Card>
    </Part>
  );
}

/** At most this many events are shown here; the page of all activity has the others. */
const CALLS = 10;

function Calls({ keyId }: { readonly keyId: string }) {
  const principal = `key:${keyId}`;
  const calls = useQuery({
    queryKey: ["audit", "key", keyId],
    queryFn: ({ signal }) =>
      take(
        api.GET("/admin/api/audit", { params: { query: { principal, type: "call", limit: CALLS } }, signal }),
      ),
  });
  return (
    <Part title="Recent calls">
      <Loaded query={calls} what="Loading its calls">
        {({ events }) => (
          <>
            <EventTable
              label="Calls with this key"
              events={events}
              empty={<Empty title="No calls yet">The kept audit log has no call with this key.</Empty>}
            />
            {events.length === 0 ? null : (
              <Anchor component={Link} to={`/activity?${new URLSearchParams({ principal, type: "call" })}`}>
                All its calls
              </Anchor>
            )}
          </>
        )}
      </Loaded>
    </Part>
  );
}

function History({ keyId }: { readonly keyId: string }) {
  const query = useQuery(historyQuery(keyId));
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
      for (const queryKey of [["key", "all"], ...CHANGED.slice(1)])
        void queries.invalidateQueries({ queryKey });
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
