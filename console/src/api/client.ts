/** The public REST API, typed by its own document. Every request of the console goes through here. */
import createClient, { type Middleware } from "openapi-fetch";
import { ApiError } from "./error";
import type { components, paths } from "./schema";
import { credential } from "./session";

export { ApiError } from "./error";
export type Shapes = components["schemas"];

const UNREACHABLE = new ApiError(
  0,
  "unreachable",
  "the gateway cannot be reached",
  "check that it is running",
);

const authorize: Middleware = {
  onRequest({ request }) {
    const token = credential();
    // A caller that tries another credential sends that one, not the stored one.
    if (token !== null && !request.headers.has("Authorization"))
      request.headers.set("Authorization", `Bearer ${token}`);
    return request;
  },
  onError: ({ error }) =>
    error instanceof DOMException && error.name === "AbortError" ? error : UNREACHABLE,
};

export const api = createClient<paths>({ baseUrl: window.location.origin });
api.use(authorize);

interface Answered<T> {
  readonly data?: T;
  readonly error?: unknown;
  readonly response: Response;
}

/** The response body. Throws an ApiError if the request failed. */
export async function take<T>(answered: Promise<Answered<T>>): Promise<T> {
  const { data, error, response } = await answered;
  if (response.ok) return data as T;
  throw toError(response.status, error);
}

/** The response body, and the ETag to change it by. */
export async function takeTagged<T>(answered: Promise<Answered<T>>): Promise<{ record: T; etag: string }> {
  const { response } = await answered;
  return { record: await take(answered), etag: response.headers.get("ETag") ?? "" };
}

/** The failure in a response body. */
export function toError(status: number, body: unknown): ApiError {
  const said = (body as { error?: Partial<Shapes["ErrorDetail"]> } | undefined)?.error;
  return new ApiError(
    status,
    said?.code ?? "error",
    said?.message ?? `the gateway responded with status ${status}`,
    said?.hint ?? "",
    said?.data ?? {},
  );
}
