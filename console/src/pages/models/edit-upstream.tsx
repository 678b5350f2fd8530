/** The chat upstream editor: every field of the record. */
import { Card } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams } from "react-router";
import { api, take } from "@/api/client";
import { SAVED } from "@/parts/leave-guard";
import { PageHead } from "@/parts/page-head";
import { MayWrite } from "@/parts/record-actions";
import { RecordEditor } from "@/parts/record-editor";
import { Loaded } from "@/parts/states";
import { type Tagged, useDraft } from "@/parts/use-draft";
import { asPlanned } from "@/parts/use-writing";
import { type Body, bodyOf, type Draft, draftOf, NEW, rebased, type Upstream } from "./draft";
import { Fields } from "./fields";
import { upstreamQuery } from "./queries";
import { Trial } from "./trial";

const TYPING = { draftOf, rebased };

export function NewUpstream() {
  return (
    <MayWrite what="chat upstreams" needs="admin">
      <PageHead title="New chat upstream" about="A model server that speaks the OpenAI API." />
      <Editor saved={{ record: NEW, etag: "" }} />
    </MayWrite>
  );
}

export function EditUpstream() {
  const { id = "" } = useParams();
  const query = useQuery(upstreamQuery(id));
  return (
    <MayWrite what="chat upstreams" needs="admin">
      <PageHead title={`Edit ${id}`} above={[{ title: id, path: `/models/${encodeURIComponent(id)}` }]} />
      <Loaded query={query} what="Loading the chat upstream">
        {(saved) => <Editor saved={saved} />}
      </Loaded>
    </MayWrite>
  );
}

function write(id: string, body: Body, etag: string, plan: string) {
  return take(
    api.PUT("/admin/api/chat-upstreams/{upstream_id}", {
      params: { path: { upstream_id: id }, header: asPlanned(plan, etag) },
      body,
    }),
  );
}

function Editor({ saved }: { readonly saved: Tagged<Upstream> }) {
  const navigate = useNavigate();
  const { base, draft, set, ...state } = useDraft<Upstream, Draft>(saved, TYPING);
  const isNew = saved.etag === "";
  const body = bodyOf(draft);
  const id = draft.upstream_id.trim();
  const page = `/models/${encodeURIComponent(id)}`;
  return (
    <RecordEditor
      change={{ kind: "chat_upstream", id, body: { ...body } }}
      isNew={isNew}
      isDirty={state.isDirty}
      isOutdated={state.isOutdated}
      onRebase={state.rebase}
      save={(plan) => write(id, body, base.etag, plan)}
      onSaved={() => void navigate(page, { state: SAVED })}
      onCancel={() => void navigate(isNew ? "/models" : page)}
    >
      <Card withBorder padding="md">
        <Fields draft={draft} set={set} isNew={isNew} />
      </Card>
      <Card withBorder padding="md" component="section" aria-label="Connection test">
        <Trial id={id} body={body} />
      </Card>
    </RecordEditor>
  );
}
