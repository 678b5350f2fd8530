/** All keys, without their secrets: the gateway keeps only hashes. */
import { Badge, Button, Text, TextInput } from "@mantine/core";
import { IconPlus } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";
import type { Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { keysQuery } from "@/api/records";
import { type Column, DataTable } from "@/parts/data-table";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { ago, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { reachOf } from "./key-draft";

type Key = Shapes["KeyShown"];

const COLUMNS: readonly Column<Key>[] = [
  {
    key: "id",
    title: "Key",
    show: (one) => <Untrusted text={one.key_id} mono />,
    sortBy: (one) => one.key_id,
  },
  { key: "role", title: "Role", show: (one) => <Role role={one.role} />, sortBy: (one) => one.role },
  {
    key: "reach",
    title: "Ceiling",
    show: (one) => <Untrusted text={reachOf(one.ceiling)} />,
    sortBy: (one) => reachOf(one.ceiling),
  },
  {
    key: "task",
    title: "Default task",
    show: (one) => (one.default_task == null ? "–" : <Untrusted text={one.default_task} mono />),
    sortBy: (one) => one.default_task ?? "",
    isMinor: true,
  },
  {
    key: "expires",
    title: "Expires",
    show: (one) => <Expiry at={one.expires_at_s} />,
    sortBy: (one) => one.expires_at_s ?? Number.MAX_SAFE_INTEGER,
  },
];

export function KeyList() {
  const mayWrite = useMay("admin");
  const keys = useQuery(keysQuery);
  const [query, setQuery] = useSearchParams();
  const wanted = query.get("q") ?? "";
  return (
    <>
      <PageHead title="Keys" about="API keys, their roles and ceilings.">
        {mayWrite ? <NewButton /> : null}
      </PageHead>
      <TextInput
        label="Filter"
        placeholder="Name or role"
        value={wanted}
        onChange={(event) => {
          const text = event.currentTarget.value;
          setQuery(text === "" ? {} : { q: text }, { replace: true });
        }}
        maw={360}
        mb="sm"
      />
      <Loaded query={keys} what="Loading the keys">
        {(rows) => (
          <DataTable
            label="Keys"
            rows={rows.filter((one) => one.key_id.includes(wanted) || one.role === wanted)}
            columns={COLUMNS}
            keyOf={(one) => one.key_id}
            hrefOf={(one) => encodeURIComponent(one.key_id)}
            sort={{ key: "id" }}
            empty={
              rows.length > 0 ? (
                <Empty title="No keys match">Clear the filter.</Empty>
              ) : (
                <Empty title="No keys yet">
                  {mayWrite
                    ? "Create one key per client, so that you can identify, limit and revoke each."
                    : "Creating keys requires the role admin."}
                </Empty>
              )
            }
          />
        )}
      </Loaded>
    </>
  );
}

function NewButton() {
  return (
    <Button component={Link} to="/keys/-/new" leftSection={<IconPlus size={16} />}>
      New key
    </Button>
  );
}

export function Role({ role }: { readonly role: Key["role"] }) {
  return (
    <Badge variant="light" color={role === "admin" ? "grape" : "gray"} tt="none" miw="max-content">
      {role}
    </Badge>
  );
}

export function Expiry({ at }: { readonly at: number | null | undefined }) {
  if (at == null) return "never";
  const ms = at * 1000;
  const isOver = ms <= Date.now();
  return (
    <Text span inherit c={isOver ? "var(--mantine-color-error)" : undefined} title={moment(ms)}>
      {isOver ? `expired ${ago(ms)}` : ago(ms)}
    </Text>
  );
}
