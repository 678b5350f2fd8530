/** The playground: call a tool with a form of its schema, or chat with a task. */
import { Tabs } from "@mantine/core";
import type { ReactNode } from "react";
import { Route, Routes, useNavigate, useSearchParams } from "react-router";
import { PageHead } from "@/parts/page-head";
import { Empty } from "@/parts/states";
import { Browse } from "./browse";
import { ChatPage } from "./chat-page";
import { NoCalls } from "./no-calls";
import { chatPath } from "./paths";
import { ToolPage } from "./tool-page";

export default function PlaygroundPage() {
  return (
    <Routes>
      <Route index element={<Tools />} />
      <Route
        path="chat"
        element={
          <Half at="chat">
            <ChatPage />
          </Half>
        }
      />
      <Route path="*" element={<Empty title="Page not found">Choose a page from the menu.</Empty>} />
    </Routes>
  );
}

function Tools() {
  const [params] = useSearchParams();
  const name = params.get("tool") ?? "";
  if (name !== "") return <ToolPage key={name} name={name} />;
  return (
    <Half at="tools">
      <Browse />
    </Half>
  );
}

/** One of the two halves of the playground, below its head. */
function Half({ at, children }: { readonly at: "tools" | "chat"; readonly children: ReactNode }) {
  const navigate = useNavigate();
  const [params] = useSearchParams();
  const task = params.get("task") ?? "";
  const go = (half: string | null) =>
    void navigate(
      half === "chat" ? chatPath(task) : `/playground${task ? `?task=${encodeURIComponent(task)}` : ""}`,
    );
  return (
    <>
      <PageHead
        title={at === "chat" ? "Chat with a task" : "Playground"}
        about={
          at === "chat"
            ? "A model answers with the tools of a task, and you see each call."
            : "Call a tool with a form of its schema, and see the result and its cost."
        }
      />
      <NoCalls />
      <Tabs value={at} onChange={go} keepMounted={false}>
        <Tabs.List mb="md">
          <Tabs.Tab value="tools">Call a tool</Tabs.Tab>
          <Tabs.Tab value="chat">Chat with a task</Tabs.Tab>
        </Tabs.List>
        <Tabs.Panel value={at}>{children}</Tabs.Panel>
      </Tabs>
    </>
  );
}
