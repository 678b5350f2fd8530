/** Uploaded modules, and the tasks that run them. */
import { Alert, Anchor, Button, FileButton, Group, Modal, Progress, Stack, Text } from "@mantine/core";
import { IconTrash, IconUpload } from "@tabler/icons-react";
import { queryOptions, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";
import { api, type Shapes, take } from "@/api/client";
import { useMay } from "@/api/me";
import { Copy } from "@/parts/copy";
import { type Column, DataTable } from "@/parts/data-table";
import { ClearFilters, FilterRow, type FilterSelect, useFilters } from "@/parts/filter-row";
import { hasWords } from "@/parts/filter-words";
import { Warnings } from "@/parts/plan-panel";
import { Empty, Failure, Loaded } from "@/parts/states";
import { ago, bytes, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { moduleName } from "./names";
import { uploadModule } from "./upload";

type Module = Shapes["ModuleShown"];

const COLUMNS: readonly Column<Module>[] = [
  { key: "name", title: "Module", sortBy: moduleName, show: (one) => <Name module={one} /> },
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
    show: (one) => <Users tasks={one.tasks} />,
    sortBy: (one) => one.tasks.length,
  },
  { key: "remove", title: "", show: (one) => <Remove module={one} />, width: 120 },
];

export const modulesQuery = queryOptions({
  queryKey: ["derived", "modules"],
  queryFn: ({ signal }) => take(api.GET("/admin/api/modules", { signal })),
});

const USE: FilterSelect = {
  name: "use",
  label: "Use",
  any: "Used or not",
  data: [
    { value: "used", label: "Used by a task" },
    { value: "unused", label: "Used by no task" },
  ],
};

export function Modules() {
  const { of, text } = useFilters();
  const use = of(USE.name);
  const query = useQuery(modulesQuery);
  const mayUpload = useMay("publisher");
  return (
    <Stack>
      {mayUpload ? <Upload /> : null}
      <Loaded query={query} what="Loading the modules">
        {({ modules }) =>
          modules.length === 0 ? (
            <Empty title="No modules yet">
              {mayUpload
                ? "Upload a .wasm file for WASI preview 1. The gateway compiles it and rejects what cannot run."
                : "Uploading one requires the role publisher."}
            </Empty>
          ) : (
            <>
              <FilterRow find="Find by task or hash" selects={[USE]} />
              <DataTable
                label="Modules"
                rows={modules.filter(
                  (one) =>
                    hasWords(text, moduleName(one), one.sha256, ...one.tasks) &&
                    (use === "" || (use === "used") === one.tasks.length > 0),
                )}
                columns={COLUMNS}
                keyOf={(one) => one.sha256}
                empty={<Empty title="No modules match" firstStep={<ClearFilters names={[USE.name]} />} />}
              />
            </>
          )
        }
      </Loaded>
    </Stack>
  );
}

/** By what people know it, with the hash behind. */
function Name({ module }: { readonly module: Module }) {
  return (
    <>
      <Text size="sm" fw={600} component="div">
        <Untrusted text={moduleName(module)} />
      </Text>
      <Group gap={4} wrap="nowrap">
        <Text size="xs" c="dimmed" className="mono" title={module.sha256}>
          {module.sha256.slice(0, 16)}…
        </Text>
        <Copy text={module.sha256} label="Copy the hash" />
      </Group>
    </>
  );
}

function Users({ tasks }: { readonly tasks: readonly string[] }) {
  if (tasks.length === 0) return "no task";
  return (
    <Group gap={6}>
      {tasks.slice(0, 5).map((one) => (
        <Anchor key={one} component={Link} to={`/tasks/${encodeURIComponent(one)}`} size="sm">
          <Untrusted text={one} mono />
        </Anchor>
      ))}
      {tasks.length > 5 ? `and ${tasks.length - 5} more` : null}
    </Group>
  );
}

function Upload() {
  const queries = useQueryClient();
  const [share, setShare] = useState(0);
  const upload = useMutation({
    mutationFn: (file: File) => uploadModule(file, setShare),
    onSuccess: () => queries.invalidateQueries({ queryKey: ["derived", "modules"] }),
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
          <span className="mono">{made.sha256.slice(0, 16)}…</span>
          <Copy text={made.sha256} label="Copy the hash" />
        </Group>
        <Text size="sm">
          {bytes(made.size)}, {made.imports.length} imported host functions. To run it, choose it as the
          workload of a{" "}
          <Anchor component={Link} to="/tasks" inherit>
            task
          </Anchor>
          .
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
      void queries.invalidateQueries({ queryKey: ["derived", "modules"] });
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
            This deletes the module <span className="mono">{module.sha256.slice(0, 16)}…</span>. If a task is
            rolled back to it, its runs fail until you upload the module again.
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
