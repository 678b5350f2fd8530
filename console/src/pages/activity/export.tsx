/** The filtered events as a file. The gateway writes it and escapes formulas. */
import { Button, Menu } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { IconDownload } from "@tabler/icons-react";
import { useMutation } from "@tanstack/react-query";
import { api, take } from "@/api/client";
import { saveFile } from "@/parts/save-file";
import { visibleText } from "@/parts/visible";
import type { Asked } from "./filter";

export function Export({ asked }: { readonly asked: Asked }) {
  const exporting = useMutation({
    mutationFn: async (format: "csv" | "jsonl") => {
      const params = { query: { ...asked, format } };
      const found = take(api.GET("/admin/api/audit/export", { params, parseAs: "blob" }));
      saveFile((await found) as unknown as Blob, `audit.${format}`);
    },
    onError: (error) =>
      notifications.show({
        color: "red",
        title: "Export failed",
        message: visibleText(error.message),
      }),
  });
  return (
    <Menu>
      <Menu.Target>
        <Button variant="default" leftSection={<IconDownload size={16} />} loading={exporting.isPending}>
          Export
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Item onClick={() => exporting.mutate("csv")}>CSV, for spreadsheets</Menu.Item>
        <Menu.Item onClick={() => exporting.mutate("jsonl")}>JSON lines, for programs</Menu.Item>
      </Menu.Dropdown>
    </Menu>
  );
}
