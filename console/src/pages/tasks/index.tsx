/** Tasks: what there are, what each sees, and how it is changed. */
import { Route, Routes } from "react-router";
import { EditTask, NewTask } from "./edit-task";
import { TaskList } from "./task-list";
import { TaskPage } from "./task-page";

export default function TasksPage() {
  return (
    <Routes>
      <Route index element={<TaskList />} />
      <Route path="-/new" element={<NewTask />} />
      <Route path=":id" element={<TaskPage />} />
      <Route path=":id/edit" element={<EditTask />} />
    </Routes>
  );
}
