/** The chat of this tab: what was said, and the answer while it streams. Kept while the console is open. */
import { skipToken, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useState } from "react";
import { ApiError, toError } from "@/api/client";
import { meQuery } from "@/api/me";
import { credential } from "@/api/session";
import { splitEvents } from "@/api/stream";
import { type Answered, ended, NOTHING, withEvent, wordsOf } from "./chat-events";

/** A question, and what came of it. */
export interface Turn extends Answered {
  readonly asked: string;
  readonly model: string;
  readonly task: string;
  readonly state: "running" | "done" | "stopped" | "failed";
  readonly error: unknown;
  /** As the audit log has it; empty: unknown. */
  readonly request: string;
  readonly tookMs: number;
}

interface Chat {
  readonly turns: readonly Turn[];
  /** What is typed and not sent. */
  readonly typed: string;
}

const KEY = ["playground", "chat"];
const EMPTY: Chat = { turns: [], typed: "" };
/** The request that runs; one at a time. */
let running: AbortController | null = null;

export function useChat() {
  const queries = useQueryClient();
  const chat = useQuery<Chat>({
    queryKey: KEY,
    queryFn: skipToken,
    initialData: EMPTY,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: Number.POSITIVE_INFINITY,
  }).data as Chat;
  const set = useCallback(
    (part: (old: Chat) => Partial<Chat>) =>
      queries.setQueryData<Chat>(KEY, (old = EMPTY) => ({ ...old, ...part(old) })),
    [queries],
  );
  // Kept twice: what is kept elsewhere comes back a moment later, which is too late for a field that is typed into.
  const [typed, setTyped] = useState(chat.typed);
  const type = (text: string) => {
    setTyped(text);
    set(() => ({ typed: text }));
  };
  const update = useCallback(
    (part: (turn: Turn) => Partial<Turn>) =>
      set(({ turns }) => {
        const last = turns.at(-1);
        return last ? { turns: [...turns.slice(0, -1), { ...last, ...part(last) }] } : {};
      }),
    [set],
  );
  const ask = async (asked: string, model: string, task: string) => {
    const before = chat.turns;
    const turn: Turn = {
      ...NOTHING,
      asked,
      model,
      task,
      state: "running",
      error: null,
      request: "",
      tookMs: 0,
    };
    set(() => ({ turns: [...before, turn] }));
    const ending = new AbortController();
    running = ending;
    const began = performance.now();
    const end = (state: Turn["state"], error: unknown = null) =>
      update((one) => ({ ...ended(one), state, error, tookMs: performance.now() - began }));
    try {
      await stream(path(task), bodyOf(before, asked, model, task), {
        signal: ending.signal,
        onRequest: (request) => update(() => ({ request })),
        onEvent: (data) => update((one) => withEvent(one, data)),
      });
      end("done");
    } catch (error) {
      if (ending.signal.aborted) end("stopped");
      else end("failed", error);
      // A login that has ended is noticed by the gate.
      if (error instanceof ApiError && error.status === 401)
        void queries.invalidateQueries({ queryKey: meQuery.queryKey });
    }
  };
  return {
    ...chat,
    isRunning: chat.turns.at(-1)?.state === "running",
    typed,
    type,
    ask,
    stop: () => running?.abort(),
    clear: () => {
      running?.abort();
      set(() => ({ turns: [] }));
    },
  };
}

function path(task: string): string {
  return `${task ? `/t/${encodeURIComponent(task)}` : ""}/v1/chat/completions`;
}

function bodyOf(before: readonly Turn[], asked: string, model: string, task: string): object {
  const said = before.flatMap((one) => {
    const words = wordsOf(one);
    // What was answered with nothing is left out with its question: models expect the two to alternate.
    if (words === "") return [];
    return [
      { role: "user", content: one.asked },
      { role: "assistant", content: words },
    ];
  });
  return {
    model,
    messages: [...said, { role: "user", content: asked }],
    stream: true,
    stream_options: { include_usage: true },
    toolgate: { progress: "full", ...(task ? {} : { mcp: { enabled: true } }) },
  };
}

interface Streaming {
  readonly signal: AbortSignal;
  readonly onRequest: (id: string) => void;
  readonly onEvent: (data: string) => void;
}

async function stream(url: string, body: object, { signal, onRequest, onEvent }: Streaming): Promise<void> {
  const token = credential();
  const headers: Record<string, string> = { "Content-Type": "application/json", Accept: "text/event-stream" };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  const response = await fetch(url, { method: "POST", headers, body: JSON.stringify(body), signal });
  onRequest(response.headers.get("X-Request-Id") ?? "");
  if (!response.ok) throw await failureOf(response);
  if (response.body === null) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let isWhole = false;
  for (;;) {
    const { done, value } = await reader.read();
    if (done) break;
    const split = splitEvents(rest + value);
    rest = split.rest;
    for (const event of split.events) {
      isWhole ||= event.data === "[DONE]";
      onEvent(event.data);
    }
  }
  if (!isWhole)
    throw new ApiError(
      0,
      "stream_ended",
      "the gateway closed the stream before its end",
      "send the message again",
    );
}

/** A response that is not a stream: its failure. */
export async function failureOf(response: Response): Promise<ApiError> {
  return toError(response.status, await response.json().catch(() => undefined));
}
