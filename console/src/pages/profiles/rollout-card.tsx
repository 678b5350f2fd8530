/** A rollout: its share, the comparison of both versions, promote and roll back. */
import { Button, Card, Group, Modal, Select, Stack, Table, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, take } from "@/api/client";
import { useMay } from "@/api/me";
import { Planned } from "@/parts/planned";
import { count } from "@/parts/time";
import { asPlanned } from "@/parts/use-writing";
import { atShare, type Body, type Profile, promoted, type Rollout } from "./draft";
import { versionsQuery } from "./queries";

interface RolloutCardProps {
  readonly profile: Profile;
  readonly rollout: Rollout;
  readonly etag: string;
}

/** A change to be looked at before it is made. */
interface Step {
  readonly title: string;
  readonly yes: string;
  readonly body: Body;
}

const SHARES = ["1", "5", "10", "25", "50", "75", "100"];

export function RolloutCard({ profile, rollout, etag }: RolloutCardProps) {
  const [step, setStep] = useState<Step | null>(null);
  const mayWrite = useMay("publisher");
  const id = profile.profile_id;
  return (
    <Card withBorder padding="md" component="section" aria-label="Rollout">
      <Stack gap="sm">
        <Group justify="space-between">
          <Title order={2} size="h4">
            Version {rollout.version} for {rollout.share} % of {rollout.by}s
          </Title>
          {mayWrite ? <Steps profile={profile} rollout={rollout} onStep={setStep} /> : null}
        </Group>
        <Text size="sm">
          All others have version {profile.version}. Raising the share adds {rollout.by}s; those that have the
          new version keep it.
        </Text>
        <Comparison id={id} />
      </Stack>
      <Modal opened={step !== null} onClose={() => setStep(null)} title={step?.title} size="lg">
        {step === null ? null : (
          <Planned
            change={{ kind: "profile", id, body: { ...step.body } }}
            write={(plan) => write(id, step.body, etag, plan)}
            onWritten={() => setStep(null)}
            onClose={() => setStep(null)}
            yes={step.yes}
            no="Cancel"
          />
        )}
      </Modal>
    </Card>
  );
}

interface StepsProps extends Pick<RolloutCardProps, "profile" | "rollout"> {
  readonly onStep: (step: Step) => void;
}

function Steps({ profile, rollout, onStep }: StepsProps) {
  const share = (text: string | null) => {
    if (text === null || Number(text) === rollout.share) return;
    onStep({ title: `Change the share to ${text} %`, yes: "Change", body: atShare(profile, Number(text)) });
  };
  const back = { title: "Roll back", yes: "Roll back", body: atShare(profile, null) };
  const forward = { title: `Promote version ${rollout.version}`, yes: "Promote", body: promoted(rollout) };
  const shares = [...new Set([...SHARES, String(rollout.share)])].sort((a, b) => Number(a) - Number(b));
  return (
    <Group gap="xs">
      <Select
        aria-label="Share"
        size="sm"
        w={100}
        data={shares.map((one) => ({ value: one, label: `${one} %` }))}
        value={String(rollout.share)}
        onChange={share}
        allowDeselect={false}
      />
      <Button variant="default" onClick={() => onStep(back)}>
        Roll back
      </Button>
      <Button onClick={() => onStep(forward)}>Promote</Button>
    </Group>
  );
}

/** The calls of the last day by version; nothing where no index of the audit is kept. */
function Comparison({ id }: { readonly id: string }) {
  const { data } = useQuery(versionsQuery(id));
  if (data === undefined) return null;
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls on a phone is reached by keyboard
    <section style={{ overflowX: "auto" }} tabIndex={0} aria-label="Calls by version">
      <Table aria-label="Calls by version, last 24 hours">
        <Table.Thead>
          <Table.Tr>
            {["Version", "Share", "Calls", "Errors", "Denied", "p50", "p95"].map((title) => (
              <Table.Th key={title}>{title}</Table.Th>
            ))}
          </Table.Tr>
        </Table.Thead>
        <Table.Tbody>
          {data.versions.map((one) => (
            <Table.Tr key={one.version}>
              <Table.Td>{one.side ? `${one.version} (${one.side})` : one.version}</Table.Td>
              <Table.Td>{one.share > 0 ? `${one.share} %` : "–"}</Table.Td>
              <Table.Td>{count(one.calls)}</Table.Td>
              <Table.Td>{count(one.errors)}</Table.Td>
              <Table.Td>{count(one.denied)}</Table.Td>
              <Table.Td>{inMs(one.p50_ms)}</Table.Td>
              <Table.Td>{inMs(one.p95_ms)}</Table.Td>
            </Table.Tr>
          ))}
        </Table.Tbody>
      </Table>
    </section>
  );
}

function inMs(value: number | null): string {
  return value === null ? "–" : `${value.toFixed(1)} ms`;
}

function write(id: string, body: Body, etag: string, plan: string) {
  return take(
    api.PUT("/admin/api/profiles/{profile_id}", {
      params: { path: { profile_id: id }, header: asPlanned(plan, etag) },
      body,
    }),
  );
}
