/** All keys, without their secrets: the gateway keeps only hashes. */
import { Button, Text } from "@mantine/core";
import { IconPlus, IconUserShare } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import type { Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { keysQuery } from "@/api/records";
import { budgetsQuery } from "@/parts/budget-uses";
import { type Column, DataTable } from "@/parts/data-table";
import { ClearFilters, FilterRow, type FilterSelect, useFilters } from "@/parts/filter-row";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { BUDGET_WORDS, type Use } from "@/parts/time-budget";
import { Untrusted } from "@/parts/untrusted";
import { nearness, ROLES, reachOf } from "./key-draft";
import { Expiry, LastUse, Reach, Role } from "./key-facts";
import { type KeyUsages, usageQuery } from "./queries";

type Key = Shapes["KeyShown"];

const SELECTS: readonly FilterSelect[] = [
  {
    name: "role",
    label: "Role",
    any: "Any role",
    data: ROLES.map(({ value }) => ({ value, label: value })),
  },
  {
    name: "expiry",
    label: "Expiry",
    any: "Any expiry",
    data: [
      { value: "over", label: "expired" },
      { value: "soon", label: "within 7 days" },
      { value: "later", label: "later" },
      { value: "never", label: "never" },
    ],
  },
];

function columnsOf(usages: KeyUsages | undefined, uses: readonly Use[]): readonly Column<Key>[] {
  const last = (one: Key) => usages?.byKey.get(one.key_id)?.last_used_ms ?? 0;
  return [
    {
      key: "id",
      title: "Key",
      show: (one) => <Untrusted text={one.key_id} mono />,
      sortBy: (one) => one.key_id,
      width: 160,
    },
    {
      key: "role",
      title: "Role",
      show: (one) => <Role role={one.role} />,
      sortBy: (one) => one.role,
      isMinor: true,
      width: 100,
    },
    {
      key: "offered",
      title: "Tools",
      show: (one) => <Reach keyId={one.key_id} usages={usages} />,
      sortBy: (one) => usages?.byKey.get(one.key_id)?.tools ?? 0,
    },
    {
      key: "ceiling",
      title: "Ceiling",
      show: (one) => <Untrusted text={reachOf(one.ceiling)} />,
      sortBy: (one) => reachOf(one.ceiling),
      isMinor: true,
    },
    { key: "quota", title: "Quota", show: (one) => <Fullest of={one} uses={uses} />, isMinor: true },
    {
      key: "used",
      title: "Last used",
      show: (one) => <LastUse keyId={one.key_id} usages={usages} />,
      sortBy: last,
      isMinor: true,
    },
    {
      key: "expires",
      title: "Expires",
      show: (one) => <Expiry at={one.expires_at_s} />,
      sortBy: (one) => one.expires_at_s ?? Number.MAX_SAFE_INTEGER,
    },
  ];
}

/** The quota of a key of which the most is used. `uses` has the fullest first. */
function Fullest({ of, uses }: { readonly of: Key; readonly uses: readonly Use[] }) {
  const fullest = uses.find((one) => one.holder_kind === "key" && one.holder_id === of.key_id);
  if (fullest === undefined) return Object.keys(of.budgets ?? {}).length > 0 ? "…" : "–";
  return (
    <Text span inherit c={fullest.used >= fullest.limit ? "var(--tone-bad)" : undefined}>
      {count(fullest.used)} of {count(fullest.limit)} {BUDGET_WORDS[fullest.budget].toLowerCase()}
    </Text>
  );
}

export function KeyList() {
  const mayWrite = useMay("admin");
  const keys = useQuery(keysQuery);
  const usages = useQuery(usageQuery()).data;
  const uses = useQuery(budgetsQuery).data ?? [];
  const filters = useFilters();
  const isShown = (one: Key) =>
    `${one.key_id}\n${one.default_task ?? ""}`.toLowerCase().includes(filters.text.trim().toLowerCase()) &&
    ["", one.role].includes(filters.of("role")) &&
    ["", nearness(one.expires_at_s, Date.now())].includes(filters.of("expiry"));
  return (
    <>
      <PageHead title="Keys" about="One key for each person and program: to identify, limit and revoke each.">
        {mayWrite ? <Ways /> : null}
      </PageHead>
      <Loaded query={keys} what="Loading the keys">
        {(rows) =>
          rows.length === 0 ? (
            <NoKeys mayWrite={mayWrite} />
          ) : (
            <>
              <FilterRow find="A key or its default task" selects={SELECTS} />
              <DataTable
                label="Keys"
                rows={rows.filter(isShown)}
                columns={columnsOf(usages, uses)}
                keyOf={(one) => one.key_id}
                hrefOf={(one) => encodeURIComponent(one.key_id)}
                sort={{ key: "id" }}
                empty={
                  <Empty title="No keys match" firstStep={<ClearFilters names={["role", "expiry"]} />} />
                }
              />
            </>
          )
        }
      </Loaded>
    </>
  );
}

function NoKeys({ mayWrite }: { readonly mayWrite: boolean }) {
  return (
    <Empty title="No keys yet" firstStep={mayWrite ? <HandOverButton /> : null}>
      {mayWrite
        ? "Hand over access: it makes a key, the URL of a task and the settings of a client in one step."
        : "Creating keys requires the role admin."}
    </Empty>
  );
}

function Ways() {
  return (
    <>
      <Button component={Link} to="/keys/-/new" variant="default" leftSection={<IconPlus size={16} />}>
        New key
      </Button>
      <HandOverButton />
    </>
  );
}

function HandOverButton() {
  return (
    <Button component={Link} to="/keys/-/hand-over" leftSection={<IconUserShare size={16} />}>
      Hand over access
    </Button>
  );
}
