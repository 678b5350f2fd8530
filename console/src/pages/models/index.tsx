/** Chat upstreams: the model servers that the chat endpoint uses. */
import { Route, Routes } from "react-router";
import { EditUpstream, NewUpstream } from "./edit-upstream";
import { UpstreamList } from "./upstream-list";
import { UpstreamPage } from "./upstream-page";

export default function Page() {
  return (
    <Routes>
      <Route index element={<UpstreamList />} />
      <Route path="-/new" element={<NewUpstream />} />
      <Route path=":id" element={<UpstreamPage />} />
      <Route path=":id/edit" element={<EditUpstream />} />
    </Routes>
  );
}
