/** All profiles: what each selects, where, and for whom. */
import { Badge, Button, Group, Text } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { useMay, useMe } from "@/api/me";
import { profilesQuery, tasksQuery } from "@/api/records";
import { type Column, DataTable } from "@/parts/data-table";
import { useFindings } from "@/parts/findings";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { draftOf, holding, type Profile, type Selection, usersOf } from "./draft";

interface Row {
  readonly id: string;
  readonly here: Selection;
  readonly environments: readonly string[];
  readonly tasks: number;
  readonly findings: number;
  readonly rollout: Profile["rollout"];
}

export function ProfileList() {
  const profiles = useQuery(profilesQuery);
  const mayWrite = useMay("publisher");
  return (
    <>
      <PageHead title="Profiles" about="Selections of servers and tools that several tasks share.">
        {mayWrite ? (
          <Button component={Link} to="/profiles/-/new" leftSection={<IconPlus size={16} />}>
            New profile
          </Button>
        ) : null}
      </PageHead>
      <Loaded query={profiles} what="Loading the profiles">
        {(found) => <Profiles profiles={found} />}
      </Loaded>
    </>
  );
}

function Profiles({ profiles }: { readonly profiles: readonly Profile[] }) {
  const { environment } = useMe();
  const findings = useFindings("profile");
  const tasks = useQuery(tasksQuery).data ?? [];
  const rows = profiles.map((profile) => ({
    id: profile.profile_id,
    here: holding(draftOf(profile), environment),
    environments: Object.keys(profile.environments),
    tasks: usersOf(profile.profile_id, tasks).length,
    findings: findings.get(profile.profile_id)?.length ?? 0,
    rollout: profile.rollout,
  }));
  return (
    <DataTable
      label="Profiles"
      rows={rows}
      columns={COLUMNS}
      keyOf={(row) => row.id}
      hrefOf={(row) => `/profiles/${encodeURIComponent(row.id)}`}
      sort={{ key: "id" }}
      empty={
        <Empty title="No profiles yet">
          Create a profile if several tasks share a selection, or if development and production differ.
        </Empty>
      }
    />
  );
}

const COLUMNS: readonly Column<Row>[] = [
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
  { key: "here", title: "Selection here", isMinor: true, show: (row) => inWords(row.here) },
  {
    key: "environments",
    title: "Overridden in",
    isMinor: true,
    width: 160,
    show: (row) => row.environments.join(", ") || "–",
  },
  {
    key: "tasks",
    title: "Tasks",
    align: "right",
    width: 80,
    sortBy: (row) => row.tasks,
    show: (row) => count(row.tasks),
  },
  {
    key: "notes",
    title: "Notes",
    width: 170,
    show: (row) => (
      <Group gap={4}>
        {row.rollout ? (
          <Badge color="blue" variant="light" tt="none">
            {row.rollout.share} % on version {row.rollout.version}
          </Badge>
        ) : null}
        {row.findings > 0 ? (
          <Badge color="orange" variant="light" tt="none">
            {count(row.findings)} {row.findings === 1 ? "unused rule" : "unused rules"}
          </Badge>
        ) : null}
      </Group>
    ),
  },
];

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
