/** Keys: who may call, how far each reaches, and the way to take one back. */
import { Route, Routes } from "react-router";
import { KeyList } from "./key-list";
import { KeyPage } from "./key-page";
import { NewKey } from "./new-key";

export default function Page() {
  return (
    <Routes>
      <Route index element={<KeyList />} />
      <Route path="-/new" element={<NewKey />} />
      <Route path=":keyId" element={<KeyPage />} />
    </Routes>
  );
}
