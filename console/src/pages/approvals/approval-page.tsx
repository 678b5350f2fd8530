/** One approval: the page that the link in the error leads to. */
import { Anchor } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";
import { api, take } from "@/api/client";
import { PageHead } from "@/parts/page-head";
import { Loaded } from "@/parts/states";
import { ApprovalCard } from "./approval-card";
import { LOOK_MS } from "./states";

export function ApprovalPage() {
  const { approvalId = "" } = useParams();
  const params = { path: { approval_id: approvalId } };
  const query = useQuery({
    queryKey: ["approvals", approvalId],
    queryFn: ({ signal }) => take(api.GET("/admin/api/approvals/{approval_id}", { params, signal })),
    refetchInterval: LOOK_MS,
  });
  return (
    <>
      <PageHead title={`Approval ${approvalId}`}>
        <Anchor component={Link} to="/approvals">
          All approvals
        </Anchor>
      </PageHead>
      <Loaded query={query} what="Loading the approval">
        {(approval) => <ApprovalCard approval={approval} />}
      </Loaded>
    </>
  );
}
