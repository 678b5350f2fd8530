/** What needs a decision. Hidden if empty. */
import { Alert, Anchor, Group } from "@mantine/core";
import { IconBell } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { api, take } from "@/api/client";
import { pinsQuery } from "@/api/records";
import { lintQuery } from "@/parts/findings";

const LOOK_MS = 5_000;
/** Larger counts are shown as this number or more. */
const MOST = 100;

function usePending(): number {
  const found = useQuery({
    queryKey: ["approvals", "pending"],
    queryFn: ({ signal }) =>
      take(api.GET("/admin/api/approvals", { params: { query: { state: "pending", limit: MOST } }, signal })),
    refetchInterval: LOOK_MS,
  });
  return found.data?.approvals.length ?? 0;
}

export function Waiting() {
  const pending = usePending();
  const waiting = (useQuery(pinsQuery).data ?? []).reduce((all, pin) => all + pin.waiting.length, 0);
  const findings = useQuery(lintQuery).data?.findings.length ?? 0;
  const said = [
    {
      many: pending,
      path: "/approvals",
      words: pending === 1 ? "call is pending approval" : "calls are pending approval",
    },
    {
      many: waiting,
      path: "/pins",
      words: waiting === 1 ? "tool is quarantined or missing" : "tools are quarantined or missing",
    },
    { many: findings, path: "/tasks", words: findings === 1 ? "rule has no effect" : "rules have no effect" },
  ].filter((one) => one.many > 0);
  if (said.length === 0) return null;
  return (
    <Alert color="yellow" icon={<IconBell />} title="Needs attention">
      <Group gap="lg">
        {said.map((one) => (
          <Anchor
            key={one.path}
            component={Link}
            to={one.path}
            c="var(--mantine-color-text)"
            underline="always"
          >
            {one.many >= MOST ? `${MOST} or more` : one.many} {one.words}
          </Anchor>
        ))}
      </Group>
    </Alert>
  );
}
