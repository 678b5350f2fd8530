/** The link to the audit record of exactly one call. */
import { Anchor, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { useMay } from "@/api/me";
import { type CallIdentity, eventOf } from "./chat-events";
import { recordQuery } from "./queries";

interface RecordLinkProps {
  readonly request: string;
  /** One of several calls of the request. */
  readonly call?: CallIdentity;
}

export function RecordLink({ request, call }: RecordLinkProps) {
  const mayRead = useMay("viewer");
  const query = useQuery({ ...recordQuery(request, call ?? {}), enabled: mayRead && request !== "" });
  if (request === "") return null;
  if (!mayRead)
    return (
      <Text size="sm" c="dimmed" component="span">
        Request <span className="mono">{request}</span>
      </Text>
    );
  const events = query.data?.events ?? [];
  const event = call ? eventOf(events, call) : events[0];
  const to = event
    ? `/activity/${encodeURIComponent(event.event_id)}`
    : `/activity?${new URLSearchParams({ request })}`;
  return (
    <Anchor component={Link} to={to} fz="sm">
      Audit record
    </Anchor>
  );
}
