/** The paths of the playground. Tool names are in the query, because a tool may be named `..`. */

export const playPath = (tool: string, task = "") =>
  `/playground?${new URLSearchParams({ tool, ...(task ? { task } : {}) })}`;

export const chatPath = (task = "") => `/playground/chat${task ? `?${new URLSearchParams({ task })}` : ""}`;
