/** One profile: its selections, the tasks that use it, its rollout, record and history. */
import { Anchor, Card, Group, SimpleGrid, Stack, Tabs, Text, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearchParams } from "react-router";
import { api, take } from "@/api/client";
import { useMe } from "@/api/me";
import { tasksQuery } from "@/api/records";
import { profilesOverviewQuery } from "@/pages/tasks/queries";
import { CodeBlock } from "@/parts/copy";
import { Findings, useFindings } from "@/parts/findings";
import { HistoryPanel } from "@/parts/history-panel";
import { NothingOffered, Offered } from "@/parts/offered";
import { PageHead } from "@/parts/page-head";
import { PatternPreview } from "@/parts/pattern-preview";
import { RecordActions } from "@/parts/record-actions";
import { Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { useToolsChange } from "@/parts/use-tools-change";
import { ENVIRONMENTS, type Profile, type Rollout, type Selection, usersOf, versionOf } from "./draft";
import { whyNothing } from "./nothing";
import { profileQuery } from "./queries";
import { RolloutCard } from "./rollout-card";

export function ProfilePage() {
  const { id = "" } = useParams();
  const query = useQuery(profileQuery(id));
  return (
    <Loaded query={query} what="Loading the profile">
      {({ record, etag }) => <ProfileShown profile={record} etag={etag} />}
    </Loaded>
  );
}

const TABS = ["selects", "record", "history"] as const;

function ProfileShown({ profile, etag }: { readonly profile: Profile; readonly etag: string }) {
  const id = profile.profile_id;
  const [params, setParams] = useSearchParams();
  const tab = TABS.find((one) => one === params.get("tab")) ?? "selects";
  const { revision: _revision, ...record } = profile;
  return (
    <>
      <PageHead title={id} about={<Users id={id} />}>
        <RecordActions
          kind="profile"
          id={id}
          home="/profiles"
          lens={`/scope?profile=${encodeURIComponent(id)}`}
          writer="publisher"
          remove={(plan) => remove(id, etag, plan)}
        />
      </PageHead>
      <Stack gap="md">
        <OfferedHere id={id} />
        {profile.rollout ? <RolloutCard profile={profile} rollout={profile.rollout} etag={etag} /> : null}
        <Findings findings={useFindings("profile").get(id)} />
        <Tabs
          value={tab}
          onChange={(next) => setParams(next === "selects" ? {} : { tab: next ?? "" }, { replace: true })}
        >
          <Tabs.List mb="md">
            <Tabs.Tab value="selects">Selection</Tabs.Tab>
            <Tabs.Tab value="record">Record</Tabs.Tab>
            <Tabs.Tab value="history">History</Tabs.Tab>
          </Tabs.List>
          <Tabs.Panel value="selects">
            {tab === "selects" ? <Selections profile={profile} /> : null}
          </Tabs.Panel>
          <Tabs.Panel value="record">
            <CodeBlock text={JSON.stringify(record, null, 2)} label="record" />
          </Tabs.Panel>
          <Tabs.Panel value="history">
            {tab === "history" ? <HistoryPanel kind="profile" id={id} writer="publisher" /> : null}
          </Tabs.Panel>
        </Tabs>
      </Stack>
    </>
  );
}

/** How many tools it offers at this gateway. */
function OfferedHere({ id }: { readonly id: string }) {
  const { environment } = useMe();
  const overview = useQuery(profilesOverviewQuery).data;
  useToolsChange();
  const seen = overview?.profiles.find((one) => one.profile_id === id);
  if (overview === undefined || seen === undefined) return null;
  const why = whyNothing(seen);
  if (why) return <NothingOffered why={why} />;
  return (
    <Text component="div">
      <Offered tools={seen.tools} of={overview.registered_tools} /> registered tools offered in {environment},{" "}
      {count(seen.tokens)} of {count(overview.registered_tokens)} tokens.
    </Text>
  );
}

/** The tasks that use it. */
function Users({ id }: { readonly id: string }) {
  const tasks = usersOf(id, useQuery(tasksQuery).data ?? []);
  if (tasks.length === 0) return "No task uses this profile.";
  return (
    <Group gap={6}>
      Used by
      {tasks.slice(0, 20).map((task) => (
        <Anchor key={task} component={Link} to={`/tasks/${encodeURIComponent(task)}`}>
          <Untrusted text={task} mono />
        </Anchor>
      ))}
      {tasks.length > 20 ? `and ${tasks.length - 20} more` : null}
    </Group>
  );
}

function Selections({ profile }: { readonly profile: Profile }) {
  const { rollout } = profile;
  if (!rollout) return <Version version={profile} suffix="" />;
  return (
    <Stack gap="md">
      <Version version={profile} suffix={` · version ${profile.version} (stable)`} />
      <Version version={rollout} suffix={` · version ${rollout.version} (candidate)`} />
    </Stack>
  );
}

/** One version: its common selection and those of environments, with `suffix` in their titles. */
function Version({ version, suffix }: { readonly version: Profile | Rollout; readonly suffix: string }) {
  const { environment } = useMe();
  const { common, environments } = versionOf(version);
  const own = ENVIRONMENTS.flatMap((name) => {
    const selection = environments[name];
    return selection ? [{ name, selection }] : [];
  });
  const isCommonHere = !own.some((one) => one.name === environment);
  return (
    <SimpleGrid cols={{ base: 1, md: own.length > 0 ? 2 : 1 }}>
      <SelectionCard title={`Common${suffix}`} isHere={isCommonHere} selection={common} />
      {own.map(({ name, selection }) => (
        <SelectionCard
          key={name}
          title={`In ${name}${suffix}`}
          isHere={name === environment}
          selection={selection}
        />
      ))}
    </SimpleGrid>
  );
}

interface SelectionCardProps {
  readonly title: string;
  /** It applies at this gateway. */
  readonly isHere: boolean;
  readonly selection: Selection;
}

function SelectionCard({ title, isHere, selection }: SelectionCardProps) {
  const { servers, tags, allow, deny } = selection;
  return (
    <Card withBorder padding="md" component="section" aria-label={title}>
      <Stack gap="xs">
        <Title order={2} size="h4">
          {title}
          {isHere ? " · applies here" : null}
        </Title>
        <Line title="Servers" list={servers} />
        <Line title="Servers with one of these tags" list={tags} />
        <Line title="Only these tools" list={allow} />
        {allow ? <PatternPreview patterns={allow} on={selection} /> : null}
        {deny.length > 0 ? <Line title="None of these tools" list={deny} /> : null}
        <PatternPreview patterns={deny} isDeny on={selection} />
      </Stack>
    </Card>
  );
}

function Line({ title, list }: { readonly title: string; readonly list: readonly string[] | null }) {
  return (
    <Text size="sm" component="div">
      <b>{title}:</b>{" "}
      {list === null ? "any" : list.length === 0 ? "none" : <Untrusted text={list.join(", ")} mono />}
    </Text>
  );
}

function remove(id: string, etag: string, plan: string) {
  return take(
    api.DELETE("/admin/api/profiles/{profile_id}", {
      params: { path: { profile_id: id }, header: { "Toolgate-Plan": plan, "If-Match": etag } },
    }),
  );
}
