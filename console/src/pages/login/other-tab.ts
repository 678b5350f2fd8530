/** A login that one tab began and another one came back from: the answer goes to the tab that can prove it was asked
 *  for. No token does, and no verifier; both stay where the login was begun. */
import { isBegunHere } from "./pkce";

const CHANNEL = "toolgate.login";
const ANSWERS_MS = 2_000;

interface Said {
  /** The query of the address that the browser came back to. */
  readonly answer?: string;
  /** The state of the login that somebody takes the answer to. */
  readonly taken?: string;
}

/** Hand in what came back here. False: it is no other tab's. */
export function handOver(answer: URLSearchParams): Promise<boolean> {
  const channel = new BroadcastChannel(CHANNEL);
  return new Promise<boolean>((done) => {
    const end = (isTaken: boolean) => {
      channel.close();
      done(isTaken);
    };
    const late = setTimeout(() => end(false), ANSWERS_MS);
    channel.onmessage = ({ data }: MessageEvent<Said>) => {
      if (data.taken !== answer.get("state")) return;
      clearTimeout(late);
      end(true);
    };
    channel.postMessage({ answer: answer.toString() } satisfies Said);
  });
}

/** Wait for the answer to the login that was begun in this tab. Returns what ends the waiting. */
export function awaitAnswer(onAnswer: (answer: URLSearchParams) => void): () => void {
  const channel = new BroadcastChannel(CHANNEL);
  channel.onmessage = ({ data }: MessageEvent<Said>) => {
    const answer = new URLSearchParams(data.answer);
    if (!isBegunHere(answer)) return;
    channel.postMessage({ taken: answer.get("state") ?? "" } satisfies Said);
    onAnswer(answer);
  };
  return () => channel.close();
}
