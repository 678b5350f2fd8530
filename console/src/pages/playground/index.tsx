/** Call a tool, or chat with a task. */
import { PageHead } from "@/parts/page-head";

export default function PlaygroundPage() {
  return <PageHead title="Playground" about="Call a tool with a form of its schema, or chat with a task." />;
}
