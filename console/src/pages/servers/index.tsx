/** Servers: all of them, each of them, new ones, and those of other programs. */
import { Route, Routes } from "react-router";
import { ImportPage } from "./import-page";
import { LoginReturn } from "./login-return";
import { NewServer } from "./new-server";
import { ServerList } from "./server-list";
import { ServerPage } from "./server-page";

/** No server ID begins with a dash, so paths below `-` are free for other pages. */
export default function Page() {
  return (
    <Routes>
      <Route index element={<ServerList />} />
      <Route path="-/new" element={<NewServer />} />
      <Route path="-/import" element={<ImportPage />} />
      <Route path="-/login" element={<LoginReturn />} />
      <Route path=":serverId/:tab?" element={<ServerPage />} />
    </Routes>
  );
}
