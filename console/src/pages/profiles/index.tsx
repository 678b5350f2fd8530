/** Profiles: selections that several tasks share, another one for each environment where that is wanted. */
import { Route, Routes } from "react-router";
import { EditProfile, NewProfile } from "./edit-profile";
import { ProfileList } from "./profile-list";
import { ProfilePage } from "./profile-page";

export default function ProfilesPage() {
  return (
    <Routes>
      <Route index element={<ProfileList />} />
      <Route path="-/new" element={<NewProfile />} />
      <Route path=":id" element={<ProfilePage />} />
      <Route path=":id/edit" element={<EditProfile />} />
    </Routes>
  );
}
