/** Pins: the approved definitions of a server's tools, and what differs from them. */
import { Route, Routes } from "react-router";
import { PinList } from "./pin-list";
import { PinPage } from "./pin-page";

export default function Page() {
  return (
    <Routes>
      <Route index element={<PinList />} />
      <Route path=":serverId" element={<PinPage />} />
    </Routes>
  );
}
