/** Writes a record, with the plan that was reviewed. */
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { Untrusted } from "./untrusted";
import type { Change } from "./use-plan";

interface Writing {
  readonly kind: Change["kind"];
  /** Gets the id of the plan. */
  readonly write: (plan: string) => Promise<{ readonly warnings: readonly string[] }>;
  readonly onWritten: () => void;
}

export function useWriting({ kind, write, onWritten }: Writing) {
  const refresh = useRefresh(kind);
  return useMutation({
    mutationFn: write,
    onSuccess: ({ warnings }) => {
      for (const one of warnings) {
        notifications.show({ color: "yellow", title: "Warning", message: <Untrusted text={one} /> });
      }
      onWritten();
      void refresh();
    },
    // Another writer may have been faster: the record and the plan are fetched again.
    onError: refresh,
  });
}

/** Refetches everything that depends on records of this kind. */
export function useRefresh(kind: Change["kind"]) {
  const queries = useQueryClient();
  return () => Promise.all([[kind], ["derived"]].map((queryKey) => queries.invalidateQueries({ queryKey })));
}

/** The headers of a change that is made as its plan showed it, of what was read; an empty tag: of nothing. */
export function asPlanned(plan: string, etag: string) {
  const condition = etag === "" ? { "If-None-Match": "*" as const } : { "If-Match": etag };
  return { "Toolgate-Plan": plan, ...condition };
}
