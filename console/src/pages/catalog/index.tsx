/** The catalog: find tools, read and try them, and pick some for a skill or a client. */
import { Route, Routes } from "react-router";
import { Empty } from "@/parts/states";
import { Browse } from "./browse";
import { CategoryPage } from "./category-page";
import { PackagePage } from "./package-page";
import { PickBar } from "./pick-bar";
import { PickedPage } from "./picked-page";
import { QualityPage } from "./quality-page";
import { ToolPage } from "./tool-page";

export default function Page() {
  return (
    <>
      <Routes>
        <Route index element={<Browse />} />
        <Route path="in/:category" element={<CategoryPage />} />
        <Route path="packages/:package" element={<PackagePage />} />
        <Route path="tool" element={<ToolPage />} />
        <Route path="picked" element={<PickedPage />} />
        <Route path="quality" element={<QualityPage />} />
        <Route path="*" element={<Empty title="Page not found">Choose a page from the menu.</Empty>} />
      </Routes>
      <PickBar />
    </>
  );
}
