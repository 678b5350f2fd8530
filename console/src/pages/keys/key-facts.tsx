/** The facts of a key that its list and its page show: role, expiry, reach and last use. */
import { Badge, Text } from "@mantine/core";
import type { Shapes } from "@/api/client";
import { LastUsed } from "@/parts/last-used";
import { Offered } from "@/parts/offered";
import { ago, count, moment } from "@/parts/time";
import { nearness } from "./key-draft";
import type { KeyUsages } from "./queries";

type Key = Shapes["KeyShown"];

export function Role({ role }: { readonly role: Key["role"] }) {
  return (
    <Badge variant="light" color={role === "admin" ? "grape" : "gray"} tt="none" miw="max-content">
      {role}
    </Badge>
  );
}

export function Expiry({ at }: { readonly at: number | null | undefined }) {
  const now = Date.now();
  const near = nearness(at, now);
  if (at == null) return "never";
  const ms = at * 1000;
  if (near === "over")
    return (
      <Badge color="red" variant="light" title={moment(ms)}>
        expired {ago(ms, now)}
      </Badge>
    );
  return (
    <Text span inherit c={near === "soon" ? "var(--tone-bad)" : undefined} title={moment(ms)}>
      {ago(ms, now)}
    </Text>
  );
}

interface UsageProps {
  readonly keyId: string;
  /** Undefined: it is loading. */
  readonly usages: KeyUsages | undefined;
}

/** "n of m offered", red at 0. */
export function Reach({ keyId, usages, isLong = false }: UsageProps & { readonly isLong?: boolean }) {
  const found = usages?.byKey.get(keyId);
  if (usages === undefined || found === undefined) return "…";
  if (found.tools === 0 && found.problem === "") return "–";
  const tokens = isLong && found.tools > 0 ? `, about ${count(found.tokens)} tokens per list` : "";
  return (
    <>
      <Offered tools={found.tools} of={usages.registered} why={whyNothing(found)} />
      {tokens}
    </>
  );
}

/** The scope lens shows what each layer leaves of the tools. */
function whyNothing({ key_id, problem }: Shapes["KeyUsage"]) {
  const path = `/scope?${new URLSearchParams({ key: key_id })}`;
  return { reason: `${problem}.`, todo: { title: "Scope lens", path } };
}

export function LastUse({ keyId, usages }: UsageProps) {
  const found = usages?.byKey.get(keyId);
  if (usages === undefined || found === undefined) return "…";
  return <LastUsed ms={found.last_used_ms} beginsMs={usages.auditBeginsMs} />;
}
