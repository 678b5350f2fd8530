/** A test of a server, separate from the connection in use. It can be cancelled: the gateway then ends what it started. */
import { useMutation } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { api, type Shapes, take } from "@/api/client";
import { useMe } from "@/api/me";
import type { Change } from "@/parts/use-plan";
import type { Body } from "./server-form";

export type TrialResponse = Shapes["TrialResponse"];

/** The server to test. Body null: as it is saved. */
export type Tried = Pick<Change, "id" | "body">;

/** A gateway that requires plans starts nothing without one, not even for a test. */
async function tryOut({ id, body }: Tried, needsPlan: boolean, signal: AbortSignal): Promise<TrialResponse> {
  const plan =
    needsPlan && body !== null
      ? await take(api.POST("/admin/api/plan", { body: { kind: "server", id, body: { ...body } }, signal }))
      : null;
  return take(
    api.POST("/admin/api/mcp/servers/{server_id}/test", {
      params: { path: { server_id: id }, header: plan ? { "Toolgate-Plan": plan.id } : undefined },
      ...(body === null ? {} : { body: body as Body }),
      signal,
    }),
  );
}

export function useTrial() {
  const me = useMe();
  const ending = useRef<AbortController | null>(null);
  const trial = useMutation({
    mutationFn: (tried: Tried) => {
      ending.current?.abort();
      ending.current = new AbortController();
      return tryOut(tried, me.require_plan, ending.current.signal);
    },
  });
  useEffect(() => () => ending.current?.abort(), []);
  return {
    ...trial,
    cancel: () => {
      ending.current?.abort();
      trial.reset();
    },
  };
}
