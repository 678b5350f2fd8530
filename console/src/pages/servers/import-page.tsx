/** Import of other programs' servers: paste a configuration, review it, store it. */
import { Button, Group, Select, Stack, Textarea } from "@mantine/core";
import { useState } from "react";
import { useMay } from "@/api/me";
import { LeaveGuard } from "@/parts/leave-guard";
import { PageHead } from "@/parts/page-head";
import { Empty } from "@/parts/states";
import { WordsField } from "./fields";
import { FilePicker, useDropped } from "./file-picker";
import { ImportReview } from "./import-review";
import type { Format } from "./imports";

interface Asked {
  readonly content: string;
  readonly format: Format;
  readonly allowed: readonly string[];
}

const FORMATS: readonly { value: Format; label: string }[] = [
  { value: "auto", label: "Detect" },
  { value: "mcpServers", label: "mcpServers: Claude, Cursor, VS Code, Windsurf" },
  { value: "server.json", label: "server.json of the official registry" },
  { value: "docker", label: "Docker MCP gateway catalog" },
  { value: "litellm", label: "LiteLLM or Codex" },
  { value: "contextforge", label: "ContextForge" },
  { value: "agentgateway", label: "agentgateway" },
  { value: "registry", label: "Toolgate records" },
];

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
        guide="how-to/import-and-export"
      />
      <Importer />
    </>
  );
}

function Importer() {
  const [asked, setAsked] = useState<Asked>({ content: "", format: "auto", allowed: [] });
  const [shown, setShown] = useState<Asked | null>(null);
  const [isDone, setDone] = useState(false);
  const change = (changed: Partial<Asked>) => {
    setAsked({ ...asked, ...changed });
    setDone(false);
  };
  const dropping = useDropped((content) => change({ content }));
  const isCurrent = shown === asked;
  return (
    <Stack>
      <form
        aria-label="Import"
        onSubmit={(event) => {
          event.preventDefault();
          setShown(asked);
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
            minRows={isDone ? 2 : 10}
            maxRows={isDone ? 2 : 24}
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
              value={asked.allowed}
              onChange={(allowed) => change({ allowed })}
              placeholder="None for new servers by default; * allows all"
            />
          </Group>
          <Group justify="flex-end">
            <FilePicker onText={(content) => change({ content })} />
            <Button
              type="submit"
              variant={isCurrent ? "default" : "filled"}
              disabled={asked.content.trim() === ""}
            >
              Preview
            </Button>
          </Group>
        </Stack>
      </form>
      {shown !== null && isCurrent ? (
        <ImportReview
          content={shown.content}
          format={shown.format}
          allowed={shown.allowed}
          onDone={() => setDone(true)}
        />
      ) : null}
      <LeaveGuard isDirty={asked.content.trim() !== "" && !isDone} />
    </Stack>
  );
}
