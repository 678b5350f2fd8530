/** Activity: the audit log, and each event. */
import { Route, Routes } from "react-router";
import { EventList } from "./event-list";
import { Story } from "./story";

export default function Page() {
  return (
    <Routes>
      <Route index element={<EventList />} />
      <Route path=":eventId" element={<Story />} />
    </Routes>
  );
}
