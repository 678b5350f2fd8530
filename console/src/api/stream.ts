/** Server-sent events by `fetch`, which can send a credential, as `EventSource` cannot. */
import { toError } from "./client";
import { ApiError } from "./error";
import { credential } from "./session";

export interface StreamEvent {
  readonly event: string;
  readonly id: string;
  readonly data: string;
}

/** Split what has come into whole events and the rest. Comments and unknown fields are dropped. */
export function splitEvents(buffer: string): { events: StreamEvent[]; rest: string } {
  const blocks = buffer.split("\n\n");
  const rest = blocks.pop() ?? "";
  const events = blocks.map(parseEvent).filter((one) => one.data !== "");
  return { events, rest };
}

function parseEvent(block: string): StreamEvent {
  const found = { event: "message", id: "", data: [] as string[] };
  for (const line of block.split("\n")) {
    const colon = line.indexOf(":");
    const value = line.slice(colon + 1).replace(/^ /, "");
    if (line.startsWith("event:")) found.event = value;
    else if (line.startsWith("id:")) found.id = value;
    else if (line.startsWith("data:")) found.data.push(value);
  }
  return { ...found, data: found.data.join("\n") };
}

/** Follow `path` until it ends, fails, or `signal` aborts. */
export async function followStream(
  path: string,
  onEvent: (event: StreamEvent) => void,
  { signal, after }: { signal: AbortSignal; after?: string },
): Promise<void> {
  const token = credential();
  const headers: Record<string, string> = { Accept: "text/event-stream" };
  if (token !== null) headers.Authorization = `Bearer ${token}`;
  if (after) headers["Last-Event-ID"] = after;
  const response = await fetch(path, { headers, signal });
  if (!response.ok) throw toError(response.status, await response.json().catch(() => undefined));
  if (response.body === null) return;
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const split = splitEvents(rest + value);
    rest = split.rest;
    split.events.forEach(onEvent);
  }
}

const RETRY_MS = [1_000, 2_000, 5_000, 10_000];

/** Follow `path` until `signal` aborts. Reconnects from the last event; calls `gap` before each retry. If the gateway
 *  cannot resume from there, the next try starts over. */
export async function keepFollowing(
  path: () => string,
  on: { event: (event: StreamEvent) => void; gap?: (failure: unknown) => void },
  signal: AbortSignal,
): Promise<void> {
  let after = "";
  for (let failures = 0; !signal.aborted; ) {
    try {
      await followStream(
        path(),
        (event) => {
          failures = 0;
          after = event.id || after;
          on.event(event);
        },
        { signal, after },
      );
      on.gap?.(null);
    } catch (failure) {
      if (signal.aborted) return;
      if (failure instanceof ApiError) after = "";
      on.gap?.(failure);
    }
    const pause = RETRY_MS[Math.min(failures, RETRY_MS.length - 1)];
    failures += 1;
    await new Promise((done) => setTimeout(done, pause));
  }
}
