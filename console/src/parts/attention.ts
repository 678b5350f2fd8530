/** What needs a person: one list for the overview and for the counts in the menu. */
import { useQuery } from "@tanstack/react-query";
import { api, take } from "@/api/client";
import { useMay } from "@/api/me";
import { keysQuery, pinsQuery, serversQuery } from "@/api/records";
import { type Attention, attentionOf } from "./attention-of";
import { lintQuery } from "./findings";

export type { Attention } from "./attention-of";

/** Larger counts are shown as this number or more. */
export const MOST_PENDING = 100;
const LOOK_MS = 5_000;
/** What needs a person now. Each part is empty until it is known; nothing is requested while `isWanted` is false. */
export function useAttention(isWanted = true): Attention {
  const isViewer = useMay("viewer") && isWanted;
  const servers = useQuery({ ...serversQuery, enabled: isViewer });
  const pins = useQuery({ ...pinsQuery, enabled: isViewer });
  const keys = useQuery({ ...keysQuery, enabled: isViewer });
  const lint = useQuery({ ...lintQuery, enabled: isViewer });
  const approvals = useQuery({
    queryKey: ["approvals", "pending"],
    queryFn: ({ signal }) =>
      take(
        api.GET("/admin/api/approvals", {
          params: { query: { state: "pending", limit: MOST_PENDING } },
          signal,
        }),
      ),
    refetchInterval: LOOK_MS,
    enabled: isViewer,
  });
  return attentionOf(
    {
      servers: servers.data ?? [],
      pins: pins.data ?? [],
      keys: keys.data ?? [],
      findings: lint.data?.findings ?? [],
      approvals: approvals.data?.approvals ?? [],
    },
    Date.now(),
  );
}
