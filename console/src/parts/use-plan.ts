/** The plan of a draft, requested shortly after the last key stroke. */
import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, take } from "@/api/client";

export interface Change {
  readonly kind: "server" | "task" | "profile" | "pin" | "chat_upstream";
  readonly id: string;
  /** The record as it shall be; null: it shall be gone. */
  readonly body: Readonly<Record<string, unknown>> | null;
}

/** Back to what a record was. */
export interface Return extends Pick<Change, "kind" | "id"> {
  readonly revision: number;
}

/** The kind of a record as people say it. */
export function spoken(kind: string): string {
  return kind.replace("_", " ");
}

const PAUSE_MS = 300;

/** The plan of `change`; idle while it is null. */
export function usePlan(change: Change | Return | null) {
  // By its text: an object that is created on every render would never settle.
  const wanted = JSON.stringify(change);
  const [text] = useDebouncedValue(wanted, PAUSE_MS);
  const settled = JSON.parse(text) as Change | Return | null;
  const query = useQuery({
    queryKey: ["derived", "plan", settled],
    queryFn: ({ signal }) => {
      if (settled === null) throw new Error("nothing to plan");
      return take(api.POST("/admin/api/plan", { body: settled, signal }));
    },
    enabled: settled !== null && settled.id !== "",
    placeholderData: keepPreviousData,
    retry: false,
  });
  /** Whether the plan or the failure is that of `change`, and not of what was typed before. */
  const isOfChange = text === wanted && !query.isPlaceholderData;
  // While a plan is made again it can still be saved: the gateway refuses a plan that is outdated. A button that is
  // disabled meanwhile would lose clicks.
  return { ...query, isSettled: isOfChange && !query.isFetching, isCurrent: isOfChange && query.isSuccess };
}
