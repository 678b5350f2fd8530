/** One chat upstream: record, connection test and history. */
import { Stack, Tabs } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useParams, useSearchParams } from "react-router";
import { api, take } from "@/api/client";
import { useMay } from "@/api/me";
import { FactRow, FactTable } from "@/parts/facts";
import { HistoryPanel } from "@/parts/history-panel";
import { PageHead } from "@/parts/page-head";
import { RecordActions } from "@/parts/record-actions";
import { Loaded } from "@/parts/states";
import { count, duration } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { BUDGETS, type Upstream } from "./draft";
import { upstreamQuery } from "./queries";
import { Trial } from "./trial";
import { Enabled } from "./upstream-list";

export function UpstreamPage() {
  const { id = "" } = useParams();
  const query = useQuery(upstreamQuery(id));
  const mayWrite = useMay("admin");
  return (
    <>
      <PageHead title={id} about={query.data ? <Untrusted text={query.data.record.display_name} /> : null}>
        {query.data ? (
          <RecordActions
            kind="chat_upstream"
            id={id}
            home="/models"
            writer="admin"
            remove={(plan) => remove(id, plan)}
          />
        ) : null}
      </PageHead>
      <Loaded query={query} what="Loading the chat upstream">
        {({ record }) => <Parts upstream={record} mayTry={mayWrite} />}
      </Loaded>
    </>
  );
}

function Parts({ upstream, mayTry }: { readonly upstream: Upstream; readonly mayTry: boolean }) {
  const [query, setQuery] = useSearchParams();
  return (
    <Tabs
      value={query.get("tab") ?? "record"}
      onChange={(tab) => setQuery(tab === "history" ? { tab } : {}, { replace: true })}
      keepMounted={false}
    >
      <Tabs.List mb="md">
        <Tabs.Tab value="record">Record</Tabs.Tab>
        <Tabs.Tab value="history">History</Tabs.Tab>
      </Tabs.List>
      <Tabs.Panel value="record">
        <Stack>
          {mayTry ? <Trial id={upstream.upstream_id} /> : null}
          <Facts upstream={upstream} />
        </Stack>
      </Tabs.Panel>
      <Tabs.Panel value="history">
        <HistoryPanel kind="chat_upstream" id={upstream.upstream_id} />
      </Tabs.Panel>
    </Tabs>
  );
}

function Facts({ upstream }: { readonly upstream: Upstream }) {
  const headers = Object.entries(upstream.headers).map(([name, value]) => `${name}: ${value}`);
  return (
    <FactTable>
      <FactRow name="State">
        <Enabled upstream={upstream} />
      </FactRow>
      <FactRow name="URL">
        <Untrusted text={upstream.base_url} mono />
      </FactRow>
      <FactRow name="Models">
        <Untrusted text={upstream.models.join(", ")} mono />
      </FactRow>
      <FactRow name="Secret">
        {upstream.auth_ref == null ? "none" : <Untrusted text={upstream.auth_ref} mono />}
      </FactRow>
      <FactRow name="Headers">
        {headers.length === 0 ? "none" : <Untrusted text={headers.join("\n")} mono />}
      </FactRow>
      <FactRow name="Mode">{upstream.mode}</FactRow>
      <FactRow name="Tool names">{upstream.name_profile}</FactRow>
      <FactRow name="Other tool types">{upstream.other_tools}</FactRow>
      <FactRow name="Undeclared calls">
        {upstream.filter_undeclared_calls ? "filtered" : "filtered in passthrough only"}
      </FactRow>
      <FactRow name="Response timeout">{duration(upstream.answer_timeout_ms)}</FactRow>
      <FactRow name="Concurrent requests">{count(upstream.max_concurrency)}</FactRow>
      {BUDGETS.map((one) => (
        <FactRow key={one.name} name={one.label}>
          {count(upstream.budgets[one.name])}
        </FactRow>
      ))}
    </FactTable>
  );
}

function remove(id: string, plan: string) {
  const params = { path: { upstream_id: id }, header: { "Toolgate-Plan": plan } };
  return take(api.DELETE("/admin/api/chat-upstreams/{upstream_id}", { params }));
}
