/** A login that starts in one tab and returns in another: the response goes to the tab that can prove that it started it.
 *  Tokens and the verifier never leave the tab where the login started. */
import { isBegunHere } from "./pkce";

const CHANNEL = "toolgate.login";
const ANSWERS_MS = 2_000;

interface Said {
  /** The query of the address that the browser came back to. */
  readonly answer?: string;
  /** The state of the login that a tab takes the response of. */
  readonly taken?: string;
}

/** Hand the response over. False: no other tab waits for it. */
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

/** Wait for the response to the login of this tab. Returns a function that stops waiting. */
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
