/** Says where calls are made, if not by this process. */
import { Alert } from "@mantine/core";
import { useMe } from "@/api/me";

export function NoCalls() {
  const { calls_tools } = useMe();
  if (calls_tools) return null;
  return (
    <Alert color="blue" title="Nodes make the calls" mb="md" role="alert">
      This process is a control plane without a data plane. Its nodes call tools and run chats. Copy the call
      and run it against a node.
    </Alert>
  );
}
