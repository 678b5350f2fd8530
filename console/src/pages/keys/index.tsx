/** Keys: who may call, how far each reaches, the way to hand one over, and to take one back. */
import { Route, Routes } from "react-router";
import { HandOver } from "./hand-over";
import { KeyList } from "./key-list";
import { KeyPage } from "./key-page";
import { NewKey } from "./new-key";

export default function Page() {
  return (
    <Routes>
      <Route index element={<KeyList />} />
      <Route path="-/new" element={<NewKey />} />
      <Route path="-/hand-over" element={<HandOver />} />
      <Route path=":keyId" element={<KeyPage />} />
    </Routes>
  );
}
