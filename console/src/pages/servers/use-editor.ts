/** The state of an editor: the stored record, the input, and its problems. */
import { useEffect, useMemo, useState } from "react";
import { type Change, usePlan } from "@/parts/use-plan";
import { type Parsed, parseJson } from "./json-record";
import { localProblems, type Problem, problemsOf } from "./problems";
import { BLANK, type Body, isSame, rebase, type ServerForm, toBody, toForm } from "./server-form";

/** A stored record, and the ETag to change it by. */
export interface Saved {
  readonly body: Body;
  readonly etag: string;
}

interface Typing {
  /** The record that the input started from. */
  readonly base: ServerForm;
  readonly etag: string | null;
  readonly form: ServerForm;
  /** The whole record as text, in JSON mode. */
  readonly json: string | null;
}

function begin(saved: Saved | null, typed?: Body): Typing {
  const base = toForm(saved?.body ?? BLANK);
  return { base, etag: saved?.etag ?? null, form: typed ? toForm(typed) : base, json: null };
}

function written(form: ServerForm): string {
  return JSON.stringify(toBody(form), null, 2);
}

function parseTyping({ form, json }: Typing): Parsed {
  return json === null ? { body: toBody(form), problems: localProblems(form) } : parseJson(json);
}

const TAKEN: Problem = { field: "server_id", problem: "duplicate server ID" };

interface Said {
  readonly problems: readonly Problem[];
  /** It is about the current input. Otherwise it is a moment old, and shown until the next result. */
  readonly isSettled: boolean;
}

/** What the gateway finds in the record as typed. */
function useGatewayProblems(change: Change | null, isNew: boolean): Said {
  const plan = usePlan(change);
  const { isSettled } = plan;
  if (change === null) return { problems: [], isSettled };
  const isTaken = isNew && !plan.isPlaceholderData && plan.data?.changes[0]?.operation !== "added";
  if (plan.isError) return { problems: problemsOf(plan.error) ?? [], isSettled };
  return { problems: isTaken && plan.data !== undefined ? [TAKEN] : [], isSettled };
}

export function useEditor(saved: Saved | null, typed?: Body) {
  const [typing, setTyping] = useState(() => begin(saved, typed));
  const [isAsked, setAsked] = useState(false);
  const [reviewed, setReviewed] = useState<Change | null>(null);
  const parsed = useMemo(() => parseTyping(typing), [typing]);
  const change = useMemo<Change | null>(
    () =>
      parsed.problems.length > 0
        ? null
        : { kind: "server", id: parsed.body.server_id ?? "", body: parsed.body },
    [parsed],
  );
  const isDirty =
    typing.json === null ? !isSame(typing.form, typing.base) : typing.json !== written(typing.base);
  const said = useGatewayProblems(isDirty ? change : null, saved === null);
  const problems = [...parsed.problems, ...said.problems];
  const mayReview = parsed.problems.length === 0 && (said.problems.length === 0 || !said.isSettled);
  const isOutdated = saved !== null && saved.etag !== typing.etag;
  useEffect(() => {
    if (isOutdated && !isDirty)
      setTyping((old) => ({ ...begin(saved), json: old.json && written(toForm(saved.body)) }));
  }, [isOutdated, isDirty, saved]);
  return {
    form: typing.form,
    json: typing.json,
    etag: typing.etag,
    change,
    reviewed,
    isDirty,
    isOutdated: isOutdated && isDirty,
    shownProblems: problems.filter((one) => isAsked || !one.isMissing),
    set: (changed: Partial<ServerForm>) =>
      setTyping((old) => ({ ...old, form: { ...old.form, ...changed } })),
    setJson: (json: string) => setTyping((old) => ({ ...old, json })),
    turnJson: (isJson: boolean) => setTyping((old) => turn(old, isJson)),
    ask: () => setAsked(true),
    /** Whether there is something to review; otherwise the missing fields are shown. */
    review: () => {
      if (mayReview) setReviewed(change);
      else setAsked(true);
      return mayReview;
    },
    closeReview: () => setReviewed(null),
    undo: () => setTyping(begin(saved)),
    rebase: () => setTyping((old) => (saved === null ? old : rebased(old, saved))),
  };
}

/** From the form to JSON and back. An invalid record stays JSON. */
function turn(old: Typing, isJson: boolean): Typing {
  if (isJson) return { ...old, json: written(old.form) };
  const parsed = parseTyping(old);
  return parsed.isForm === false ? old : { ...old, form: toForm(parsed.body), json: null };
}

function rebased(old: Typing, saved: Saved): Typing {
  const parsed = parseTyping(old);
  const theirs = toForm(saved.body);
  if (parsed.isForm === false) return { ...old, base: theirs, etag: saved.etag };
  const form = rebase(old.base, toForm(parsed.body), theirs);
  return { base: theirs, etag: saved.etag, form, json: old.json && written(form) };
}
