/** Approvals: calls that wait for a person, and what became of others. */
import { Route, Routes } from "react-router";
import { ApprovalPage } from "./approval-page";
import { Queue } from "./queue";

export default function Page() {
  return (
    <Routes>
      <Route index element={<Queue />} />
      <Route path=":approvalId" element={<ApprovalPage />} />
    </Routes>
  );
}
