/** What the list of tools shows: words, server and task, all in the URL. */
import { Group, Select } from "@mantine/core";
import { IconSearch } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { useSearchParams } from "react-router";
import { SettledInput } from "@/parts/settled-input";
import { TaskChoice } from "@/parts/task-choice";
import { visibleText } from "@/parts/visible";
import { reachQuery } from "../catalog/queries";

export function BrowseFields() {
  const [params, setParams] = useSearchParams();
  const servers = useQuery(reachQuery).data?.map((one) => one.server_id) ?? [];
  const server = params.get("server") ?? "";
  const set = (name: string, value: string) =>
    setParams(
      (old) => {
        if (value) old.set(name, value);
        else old.delete(name);
        return old;
      },
      { replace: true },
    );
  const all = server === "" || servers.includes(server) ? servers : [server, ...servers];
  return (
    <Group gap="xs" role="search" aria-label="Search the tools" align="flex-end">
      <SettledInput
        aria-label="Search"
        placeholder="Name or purpose of a tool"
        leftSection={<IconSearch size={16} />}
        value={params.get("q") ?? ""}
        onChange={(value) => set("q", value)}
        maxLength={1024}
        style={{ flex: "1 1 260px" }}
      />
      <Select
        aria-label="Server"
        placeholder="Any server"
        data={all.map((one) => ({ value: one, label: visibleText(one) }))}
        value={server || null}
        onChange={(value) => set("server", value ?? "")}
        searchable
        clearable
        clearButtonProps={{ "aria-label": "Clear server" }}
        limit={50}
        w={180}
        nothingFoundMessage="No matches"
      />
      <TaskChoice value={params.get("task") ?? ""} onChange={(value) => set("task", value)} />
    </Group>
  );
}
