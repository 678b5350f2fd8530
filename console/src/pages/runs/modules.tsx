/** Uploaded modules, and the tasks that run them. */
import { Alert, Button, FileButton, Group, Modal, Progress, Stack, Text } from "@mantine/core";
import { IconTrash, IconUpload } from "@tabler/icons-react";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Shapes, take } from "@/api/client";
import { useMay } from "@/api/me";
import { Copy } from "@/parts/copy";
import { type Column, DataTable } from "@/parts/data-table";
import { Warnings } from "@/parts/plan-panel";
import { Empty, Failure, Loaded } from "@/parts/states";
import { ago, bytes, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { uploadModule } from "./upload";

type Module = Shapes["ModuleShown"];

const COLUMNS: readonly Column<Module>[] = [
  { key: "sha256", title: "SHA-256", show: (one) => <Hash sha256={one.sha256} /> },
  { key: "size", title: "Size", show: (one) => bytes(one.size), sortBy: (one) => one.size, isMinor: true },
  {
    key: "at",
    title: "Uploaded",
    show: (one) => <span title={moment(one.at_ms)}>{ago(one.at_ms)}</span>,
    sortBy: (one) => one.at_ms,
    isMinor: true,
  },
  {
    key: "tasks",
    title: "Used by",
    show: (one) => (one.tasks.length === 0 ? "no task" : <Untrusted text={one.tasks.join(", ")} mono />),
    sortBy: (one) => one.tasks.length,
  },
  { key: "remove", title: "", show: (one) => <Remove module={one} /> },
];

export function Modules() {
  const query = useQuery({
    queryKey: ["modules"],
    queryFn: ({ signal }) => take(api.GET("/admin/api/modules", { signal })),
  });
  const mayUpload = useMay("publisher");
  return (
    <Stack>
      {mayUpload ? <Upload /> : null}
      <Loaded query={query} what="Loading the modules">
        {({ modules }) => (
          <DataTable
            label="Modules"
            rows={modules}
            columns={COLUMNS}
            keyOf={(one) => one.sha256}
            empty={
              <Empty title="No modules yet">
                Upload a .wasm file for WASI preview 1. The gateway compiles it and rejects what cannot run.
              </Empty>
            }
          />
        )}
      </Loaded>
    </Stack>
  );
}

function Hash({ sha256 }: { readonly sha256: string }) {
  return (
    <Group gap={4} wrap="nowrap">
      <span className="mono" title={sha256}>
        {sha256.slice(0, 16)}…
      </span>
      <Copy text={sha256} label="Copy the hash" />
    </Group>
  );
}

function Upload() {
  const queries = useQueryClient();
  const [share, setShare] = useState(0);
  const upload = useMutation({
    mutationFn: (file: File) => uploadModule(file, setShare),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["modules"] }),
  });
  return (
    <Stack gap="xs" maw={720}>
      <FileButton
        accept=".wasm,application/wasm"
        onChange={(file) => file !== null && upload.mutate(file)}
        inputProps={{ "aria-label": "Module file" }}
      >
        {(props) => (
          <Button
            {...props}
            leftSection={<IconUpload size={16} />}
            loading={upload.isPending}
            style={{ alignSelf: "flex-start" }}
          >
            Upload module
          </Button>
        )}
      </FileButton>
      {upload.isPending ? (
        <Progress value={Math.max(5, share * 100)} animated aria-label="Uploading the module" />
      ) : null}
      {upload.isError ? <Failure error={upload.error} /> : null}
      {upload.data ? <Uploaded made={upload.data} /> : null}
    </Stack>
  );
}

function Uploaded({ made }: { readonly made: Shapes["ModuleUploaded"] }) {
  return (
    <Alert color="green" title={made.is_new ? "Module uploaded" : "Module already uploaded"}>
      <Stack gap="xs">
        <Group gap={4}>
          <span className="mono">{made.sha256}</span>
          <Copy text={made.sha256} label="Copy the hash" />
        </Group>
        <Text size="sm">
          {bytes(made.size)}, {made.imports.length} imported host functions. Set the hash as a task's
          workload.
        </Text>
        <Warnings warnings={made.warnings} />
      </Stack>
    </Alert>
  );
}

function Remove({ module }: { readonly module: Module }) {
  const queries = useQueryClient();
  const [isAsking, setAsking] = useState(false);
  const remove = useMutation({
    mutationFn: () =>
      take(api.DELETE("/admin/api/modules/{sha256}", { params: { path: { sha256: module.sha256 } } })),
    onSuccess: () => {
      setAsking(false);
      void queries.invalidateQueries({ queryKey: ["modules"] });
    },
  });
  if (!useMay("admin")) return null;
  const isUsed = module.tasks.length > 0;
  return (
    <>
      <Button
        size="xs"
        variant="subtle"
        color="red"
        leftSection={<IconTrash size={14} />}
        disabled={isUsed}
        title={isUsed ? "A task uses this module" : undefined}
        onClick={() => setAsking(true)}
      >
        Delete
      </Button>
      <Modal opened={isAsking} onClose={() => setAsking(false)} title="Delete module">
        <Stack>
          <Text>
            If a task is rolled back to <span className="mono">{module.sha256.slice(0, 16)}…</span> , its runs
            fail until you upload the module again.
          </Text>
          {remove.isError ? <Failure error={remove.error} /> : null}
          <Group justify="flex-end">
            <Button variant="default" onClick={() => setAsking(false)}>
              Cancel
            </Button>
            <Button color="red" onClick={() => remove.mutate()} loading={remove.isPending}>
              Delete
            </Button>
          </Group>
        </Stack>
      </Modal>
    </>
  );
}
