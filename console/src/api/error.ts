/** Failures. Separate from the client, so that code which only shows them needs no browser. */

/** A failure as the gateway returns it: what happened, and what to do next. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly hint: string,
    readonly data: Readonly<Record<string, unknown>> = {},
  ) {
    super(message);
  }
}
