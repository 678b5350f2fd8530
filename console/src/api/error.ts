/** Failures, apart from what sends requests: so that what only tells of them needs no browser. */

/** A failure as the gateway tells it: what happened, and what to do next. */
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
