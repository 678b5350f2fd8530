/** Import of other programs' servers: paste a configuration, review it, store it. */
import { Button, Group, Select, Stack, Textarea } from "@mantine/core";
import { notifications } from "@mantine/notifications";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { useNavigate } from "react-router";
import { api, take } from "@/api/client";
import { useMay } from "@/api/me";
import { LeaveGuard, SAVED } from "@/parts/leave-guard";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure } from "@/parts/states";
import { WordsField } from "./fields";
import { FilePicker, useDropped } from "./file-picker";
import { ImportPreview } from "./import-preview";
import { type Format, type ImportResponse, wanted } from "./imports";

/** All that decides what an import does. */
interface Asked {
  readonly content: string;
  readonly format: Format;
  readonly allowed_tools: readonly string[];
  readonly only: readonly string[] | null;
}

const FORMATS: readonly { value: Format; label: string }[] = [
  { value: "auto", label: "Detect" },
  { value: "mcpServers", label: "mcpServers: Claude, Cursor, VS Code, Windsurf" },
  { value: "server.json", label: "server.json of the official registry" },
  { value: "docker", label: "Docker MCP gateway catalog" },
  { value: "registry", label: "Toolgate records" },
];

function send(asked: Asked, plan: string | null): Promise<ImportResponse> {
  return take(
    api.POST("/admin/api/mcp/servers/import", {
      params: { header: plan === null ? undefined : { "Toolgate-Plan": plan } },
      body: {
        content: asked.content,
        format: asked.format,
        allowed_tools: [...asked.allowed_tools],
        only: asked.only === null ? null : [...asked.only],
        skip_invalid: true,
        dry_run: plan === null,
      },
    }),
  );
}

export function ImportPage() {
  if (!useMay("admin"))
    return (
      <Empty title="Only admins can import servers">
        Servers run programs, so importing them requires the role admin.
      </Empty>
    );
  return (
    <>
      <PageHead
        title="Import servers"
        about="Paste the configuration of Claude, Cursor, VS Code, Windsurf or a registry. You review the plan before anything is stored."
      />
      <Importer />
    </>
  );
}

function useImport() {
  const queries = useQueryClient();
  const navigate = useNavigate();
  const [asked, setAsked] = useState<Asked>({ content: "", format: "auto", allowed_tools: [], only: null });
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  // Kept while the plan is computed again, so that users keep their place.
  const [seen, setSeen] = useState<{ answer: ImportResponse; asked: Asked } | null>(null);
  const look = useMutation({
    mutationFn: (now: Asked) => send(now, null),
    onSuccess: (answer, now) => setSeen({ answer, asked: now }),
  });
  const apply = useMutation({
    mutationFn: (plan: string) => send(asked, plan),
    onSuccess: (answer) => {
      const number = answer.changes.length;
      notifications.show({
        message: number === 1 ? "1 server was stored." : `${number} servers were stored.`,
      });
      void navigate("/servers", { state: SAVED });
      void queries.invalidateQueries({ queryKey: ["server"] });
    },
  });
  const pick = (next: ReadonlySet<string>) => {
    const now = { ...asked, only: wanted(seen?.answer, next) };
    setLeft(next);
    setAsked(now);
    look.mutate(now);
  };
  const change = (changed: Partial<Asked>) => {
    setLeft(new Set());
    apply.reset();
    setAsked({ ...asked, ...changed, only: null });
  };
  return { asked, left, seen, look, apply, pick, change };
}

function Importer() {
  const { asked, left, seen, look, apply, pick, change } = useImport();
  const dropping = useDropped((content) => change({ content }));
  const isCurrent = seen?.asked === asked;
  return (
    <Stack>
      <form
        aria-label="Import"
        onSubmit={(event) => {
          event.preventDefault();
          look.mutate(asked);
        }}
      >
        <Stack>
          <Textarea
            label="Definitions"
            description="JSON (comments allowed), TOML, or a catalog's YAML. You can drop a file here."
            value={asked.content}
            onChange={(event) => change({ content: event.currentTarget.value })}
            error={dropping.problem}
            onDrop={dropping.onDrop}
            onDragOver={(event) => event.preventDefault()}
            autosize
            minRows={10}
            maxRows={24}
            classNames={{ input: "mono" }}
            spellCheck={false}
            placeholder={'{ "mcpServers": { "files": { "command": "npx", "args": ["-y", "…"] } } }'}
          />
          <Group align="flex-start" grow preventGrowOverflow={false}>
            <Select
              label="Format"
              data={[...FORMATS]}
              value={asked.format}
              allowDeselect={false}
              onChange={(chosen) =>
                change({ format: FORMATS.find((one) => one.value === chosen)?.value ?? "auto" })
              }
            />
            <WordsField
              label="Allowed tools"
              value={asked.allowed_tools}
              onChange={(allowed_tools) => change({ allowed_tools })}
              placeholder="None for new servers by default; * allows all"
            />
          </Group>
          <Group justify="flex-end">
            <FilePicker onText={(content) => change({ content })} />
            <Button
              type="submit"
              variant={isCurrent ? "default" : "filled"}
              disabled={asked.content.trim() === ""}
              loading={look.isPending}
            >
              Preview
            </Button>
          </Group>
        </Stack>
      </form>
      {look.isError ? <Failure error={look.error} /> : null}
      {seen ? (
        <ImportPreview
          answer={seen.answer}
          left={left}
          onLeave={pick}
          isCurrent={isCurrent && !look.isPending}
          isPending={apply.isPending}
          onApply={(plan) => apply.mutate(plan)}
        />
      ) : null}
      {apply.isError ? <Failure error={apply.error} onRetry={() => look.mutate(asked)} /> : null}
      <LeaveGuard isDirty={asked.content.trim() !== ""} />
    </Stack>
  );
}
