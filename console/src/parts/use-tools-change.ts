/** Refetches what follows from the tools of servers when those change: no watch reports that. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { useMay } from "@/api/me";
import { serversQuery } from "@/api/records";
import { standing } from "./standing";

/** For pages with counts and findings that depend on which tools are listed now. */
export function useToolsChange(): void {
  const queries = useQueryClient();
  const servers = useQuery({ ...serversQuery, enabled: useMay("viewer") }).data;
  const now = servers?.map((one) => [one.server_id, standing(one).state, standing(one).tools].join()).join();
  const before = useRef(now);
  useEffect(() => {
    if (now === undefined || now === before.current) return;
    const isFirst = before.current === undefined;
    before.current = now;
    if (!isFirst) void queries.invalidateQueries({ queryKey: ["derived"] });
  }, [now, queries]);
}
