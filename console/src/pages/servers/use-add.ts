/** The state of adding a server: what was pasted, what it lacks, its test, and what is offered. */
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { serversQuery } from "@/api/records";
import type { Change } from "@/parts/use-plan";
import { type Answers, type Blank, blanksOf, filled, isAnswered } from "./blanks";
import { allowedFor, ticksOf, usualTicks } from "./choice";
import { sendImport } from "./import-request";
import { completed, type Pasted, recognise } from "./paste";
import { idProblem } from "./problems";
import { proposeId } from "./proposed-id";
import type { Body } from "./server-form";
import { useTrial } from "./use-trial";

const PAUSE_MS = 300;
const NO_TOOLS = { tools: [], ticked: new Set<string>() };

interface Draft {
  readonly body: Body;
  readonly name: string;
}

/** What the gateway reads in a document; idle without a document. */
export function useDocument(pasted: Pasted) {
  const wanted = pasted.kind === "file" ? pasted.text : "";
  const [text] = useDebouncedValue(wanted, PAUSE_MS);
  const query = useQuery({
    queryKey: ["derived", "document", text],
    queryFn: () => sendImport({ content: text, format: "auto", allowed_tools: [], only: null }, null),
    enabled: text !== "" && wanted !== "",
    retry: false,
    gcTime: 0,
  });
  const isOfText = wanted !== "" && text === wanted;
  return {
    text: wanted,
    isReading: wanted !== "" && (!isOfText || query.isPending),
    error: isOfText && query.isError ? query.error : null,
    found: isOfText && query.isSuccess ? query.data : null,
  };
}

type Read = ReturnType<typeof useDocument>;

function draftOf(pasted: Pasted, read: Read): Draft | null {
  if (pasted.kind === "command" || pasted.kind === "url") return pasted;
  const [only, ...others] = read.found?.records ?? [];
  const isAlone = only !== undefined && others.length === 0 && read.found?.servers.length === 1;
  return isAlone ? { body: completed(only), name: "" } : null;
}

function bodyOf(draft: Draft, blanks: readonly Blank[], answers: Answers, id: string): Body {
  const title = draft.name !== "" && draft.name !== id ? { display_name: draft.name } : {};
  return { ...title, ...filled(draft.body, blanks, answers), server_id: id };
}

/** `body` as a server whose authorization server people log in to. */
function withLogin(body: Body): Body {
  if (!body.http) return body;
  const oauth = { grant: "authorization_code" as const, scopes: [], per_principal: false };
  return { ...body, http: { ...body.http, oauth } };
}

/** The tools that the last test found, and those that are ticked. */
function choiceOf(trial: ReturnType<typeof useTrial>, body: Body | null, ticks: ReadonlySet<string> | null) {
  const tools = trial.data?.found ?? [];
  const allowed = body?.allowed_tools ?? [];
  if (body === null || tools.length === 0) return NO_TOOLS;
  const first = allowed.length > 0 ? ticksOf(allowed, body.server_id ?? "", tools) : usualTicks(tools);
  return { tools, ticked: ticks ?? first };
}

export function useAdd() {
  const [text, setText] = useState("");
  const [typedId, setId] = useState<string | null>(null);
  const [answers, setAnswers] = useState<Answers>({});
  const [ticks, setTicks] = useState<ReadonlySet<string> | null>(null);
  const [reviewed, setReviewed] = useState<Change | null>(null);
  const trial = useTrial();
  const servers = useQuery(serversQuery).data;
  const taken = useMemo(() => new Set(servers?.map((one) => one.server_id)), [servers]);
  const pasted = useMemo(() => recognise(text), [text]);
  const read = useDocument(pasted);
  const draft = draftOf(pasted, read);
  const proposed = draft === null ? "" : proposeId(draft.body, draft.name, taken);
  const id = typedId ?? proposed;
  const blanks = useMemo(() => (draft === null ? [] : blanksOf(draft.body)), [draft]);
  const body = draft === null ? null : bodyOf(draft, blanks, answers, id);
  const isTaken = taken.has(id);
  const problem = draft === null ? "" : isTaken ? "duplicate server ID" : idProblem(id);
  const isComplete = draft !== null && problem === "" && blanks.every((one) => isAnswered(one, answers));
  const isTested =
    trial.isSuccess && trial.data.ok && JSON.stringify(trial.variables.body) === JSON.stringify(body);
  const choice = choiceOf(trial, body, ticks);
  const test = () => {
    if (!isComplete || body === null || trial.isPending) return;
    setTicks(null);
    trial.mutate({ id, body });
  };
  return {
    text,
    /** Another text is another server. */
    setText: (next: string) => {
      setText(next);
      trial.cancel();
      setTicks(null);
    },
    pasted,
    read,
    draft,
    body,
    id,
    setId,
    /** The ID in the file or of the command is another server's. */
    renamedFrom:
      draft !== null && typedId === null && draft.body.server_id !== id ? (draft.body.server_id ?? "") : "",
    problem,
    blanks,
    answers,
    answer: (key: string, answer: Answers[string]) => setAnswers((old) => ({ ...old, [key]: answer })),
    isComplete,
    trial,
    isTested,
    test,
    choice,
    setTicks,
    reviewed,
    /** Shows the plan of saving it, with what is ticked; or as a server that people log in to. */
    review: (hasLogin = false) => {
      if (body === null) return;
      const patterns = body.allowed_tools ?? [];
      const allowed_tools = isTested
        ? allowedFor(choice.ticked, choice.tools, { serverId: id, patterns })
        : patterns;
      const record = hasLogin ? withLogin(body) : body;
      setReviewed({ kind: "server", id, body: { ...record, allowed_tools } });
    },
    closeReview: () => setReviewed(null),
  };
}

export type Adding = ReturnType<typeof useAdd>;
