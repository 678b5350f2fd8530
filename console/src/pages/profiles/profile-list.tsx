/** All profiles: how many tools each offers, what it selects, where, and for whom. */
import { Badge, Button, Group, Text } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { useMay, useMe } from "@/api/me";
import { profilesQuery, tasksQuery } from "@/api/records";
import { profilesOverviewQuery } from "@/pages/tasks/queries";
import { type Column, DataTable } from "@/parts/data-table";
import { ClearFilters, FilterRow, useFilters } from "@/parts/filter-row";
import { hasWords } from "@/parts/filter-words";
import { useFindings } from "@/parts/findings";
import { Offered, type WhyNothing } from "@/parts/offered";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { useToolsChange } from "@/parts/use-tools-change";
import { draftOf, holding, type Profile, type Selection, usersOf } from "./draft";
import { whyNothing } from "./nothing";

interface Row {
  readonly id: string;
  readonly here: Selection;
  readonly environments: readonly string[];
  readonly tasks: readonly string[];
  readonly findings: number;
  readonly rollout: Profile["rollout"];
  /** Null: not known yet. */
  readonly tools: number | null;
  readonly why: WhyNothing | null;
}

const STATES: Readonly<Record<string, { label: string; has: (row: Row) => boolean }>> = {
  none: { label: "Selects nothing", has: (row) => row.tools === 0 },
  rollout: { label: "Being rolled out", has: (row) => row.rollout != null },
  review: { label: "Something to review", has: (row) => row.findings > 0 },
  unused: { label: "Used by no task", has: (row) => row.tasks.length === 0 },
};
const SELECTED = ["state", "task"] as const;

export function ProfileList() {
  const profiles = useQuery(profilesQuery);
  useToolsChange();
  return (
    <>
      <PageHead title="Profiles" about="Selections of servers and tools that several tasks share.">
        <NewProfileButton title="New profile" />
      </PageHead>
      <Loaded query={profiles} what="Loading the profiles">
        {(found) => (found.length === 0 ? <NoProfiles /> : <Profiles profiles={found} />)}
      </Loaded>
    </>
  );
}

function NewProfileButton({ title }: { readonly title: string }) {
  if (!useMay("publisher")) return null;
  return (
    <Button component={Link} to="/profiles/-/new" leftSection={<IconPlus size={16} />}>
      {title}
    </Button>
  );
}

function NoProfiles() {
  return (
    <Empty title="No profiles yet" firstStep={<NewProfileButton title="Make the first profile" />}>
      Create a profile if several tasks share a selection, or if development and production differ.
    </Empty>
  );
}

function Profiles({ profiles }: { readonly profiles: readonly Profile[] }) {
  const { environment } = useMe();
  const findings = useFindings("profile");
  const tasks = useQuery(tasksQuery).data ?? [];
  const overview = useQuery(profilesOverviewQuery).data;
  const { of, text } = useFilters();
  const seen = new Map(overview?.profiles.map((one) => [one.profile_id, one]));
  const rows: Row[] = profiles.map((profile) => {
    const counted = seen.get(profile.profile_id);
    return {
      id: profile.profile_id,
      here: holding(draftOf(profile), environment),
      environments: Object.keys(profile.environments),
      tasks: usersOf(profile.profile_id, tasks),
      findings: findings.get(profile.profile_id)?.length ?? 0,
      rollout: profile.rollout,
      tools: counted?.tools ?? null,
      why: counted ? whyNothing(counted) : null,
    };
  });
  const [state, task] = SELECTED.map(of);
  const shown = rows.filter(
    (row) =>
      hasWords(text, row.id) &&
      (STATES[state ?? ""]?.has(row) ?? true) &&
      (task === "" || row.tasks.includes(task ?? "")),
  );
  const users = [...new Set(rows.flatMap((row) => row.tasks))].sort();
  return (
    <>
      <FilterRow
        find="Find by name"
        selects={[
          {
            name: "state",
            label: "State",
            any: "Any state",
            data: Object.entries(STATES).map(([value, { label }]) => ({ value, label })),
          },
          {
            name: "task",
            label: "Used by",
            any: "Any task",
            data: users.map((one) => ({ value: one, label: one })),
          },
        ]}
      />
      <DataTable
        label="Profiles"
        rows={shown}
        columns={columnsOf(overview?.registered_tools ?? 0)}
        keyOf={(row) => row.id}
        hrefOf={(row) => `/profiles/${encodeURIComponent(row.id)}`}
        sort={{ key: "id" }}
        empty={<Empty title="No profiles match" firstStep={<ClearFilters names={SELECTED} />} />}
      />
    </>
  );
}

function columnsOf(allTools: number): readonly Column<Row>[] {
  return [
    {
      key: "id",
      title: "Profile",
      sortBy: (row) => row.id,
      show: (row) => (
        <Text size="sm" fw={600} component="div">
          <Untrusted text={row.id} mono />
        </Text>
      ),
    },
    {
      key: "tools",
      title: "Tools offered",
      width: "26%",
      sortBy: (row) => row.tools ?? -1,
      show: (row) => (row.tools === null ? "…" : <Offered tools={row.tools} of={allTools} why={row.why} />),
    },
    { key: "here", title: "Selection here", isMinor: true, show: (row) => inWords(row.here) },
    {
      key: "environments",
      title: "Overridden in",
      isMinor: true,
      width: 130,
      show: (row) => row.environments.join(", ") || "–",
    },
    {
      key: "tasks",
      title: "Tasks",
      align: "right",
      width: 80,
      sortBy: (row) => row.tasks.length,
      show: (row) => count(row.tasks.length),
    },
    { key: "notes", title: "To review", width: 170, isMinor: true, show: (row) => <Notes row={row} /> },
  ];
}

function Notes({ row }: { readonly row: Row }) {
  if (!row.rollout && row.findings === 0) return "–";
  return (
    <Group gap={4}>
      {row.rollout ? (
        <Badge color="blue" variant="light">
          {row.rollout.share} % on version {row.rollout.version}
        </Badge>
      ) : null}
      {row.findings > 0 ? (
        <Badge color="orange" variant="light">
          {count(row.findings)} {row.findings === 1 ? "unused rule" : "unused rules"}
        </Badge>
      ) : null}
    </Group>
  );
}

/** A selection in a few words. */
function inWords({ servers, tags, allow, deny }: Selection): string {
  const said = [
    servers && some(servers, "server"),
    tags && some(tags, "tag"),
    allow && some(allow, "allowed pattern"),
    deny.length > 0 && some(deny, "denied pattern"),
  ];
  return said.filter(Boolean).join(", ") || "everything";
}

function some(list: readonly string[], what: string): string {
  return `${count(list.length)} ${what}${list.length === 1 ? "" : "s"}`;
}
