/** Unused grants: tools that tasks grant and keys allow, but no caller uses. */
import { Route, Routes } from "react-router";
import { HolderPage } from "./holder-page";
import { UnusedList } from "./unused-list";

export default function Page() {
  return (
    <Routes>
      <Route index element={<UnusedList />} />
      <Route path=":kind/:id" element={<HolderPage />} />
    </Routes>
  );
}
