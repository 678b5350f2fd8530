/** One approval: the page that the link in the error leads to. */
import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";
import { api, take } from "@/api/client";
import { useMay } from "@/api/me";
import { PageHead } from "@/parts/page-head";
import { Loaded } from "@/parts/states";
import { ApprovalCard, ApprovalState } from "./approval-card";
import { LOOK_MS, nameOf } from "./states";

export function ApprovalPage() {
  const { approvalId = "" } = useParams();
  const params = { path: { approval_id: approvalId } };
  const query = useQuery({
    queryKey: ["approvals", approvalId],
    queryFn: ({ signal }) => take(api.GET("/admin/api/approvals/{approval_id}", { params, signal })),
    refetchInterval: LOOK_MS,
  });
  const mayRead = useMay("viewer");
  return (
    <>
      <PageHead
        title={query.data ? nameOf(query.data) : "Approval"}
        about={query.data ? <ApprovalState state={query.data.state} /> : null}
      >
        {mayRead ? (
          <Button
            component={Link}
            to={`/activity?${new URLSearchParams({ approval: approvalId })}`}
            variant="default"
          >
            Audit records
          </Button>
        ) : null}
      </PageHead>
      <Loaded query={query} what="Loading the approval">
        {(approval) => <ApprovalCard approval={approval} />}
      </Loaded>
    </>
  );
}
