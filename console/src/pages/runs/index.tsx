/** WASM tasks: modules, runs, and their results. */
import { Route, Routes } from "react-router";
import { RunPage } from "./run-page";
import { RunsHome } from "./runs-home";
import { TaskRuns } from "./task-runs";

export default function Page() {
  return (
    <Routes>
      <Route index element={<RunsHome />} />
      <Route path=":taskId" element={<TaskRuns />} />
      <Route path=":taskId/:invocationId" element={<RunPage />} />
    </Routes>
  );
}
