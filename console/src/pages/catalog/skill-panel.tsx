/** The manifest of a skill with the picked tools, to be copied or saved. */
import { Button, Card, Group, SegmentedControl, Stack, Text, TextInput } from "@mantine/core";
import { IconDownload } from "@tabler/icons-react";
import { useState } from "react";
import { CodeBlock } from "@/parts/copy";
import { saveFile } from "@/parts/save-file";
import { fileOf, idTrouble, toJson, toToml } from "./manifest";

export function SkillPanel({ tools }: { readonly tools: readonly string[] }) {
  const [id, setId] = useState("my-skill");
  const [name, setName] = useState("");
  const [format, setFormat] = useState<"json" | "toml">("toml");
  const trouble = idTrouble(id);
  const text = (format === "json" ? toJson : toToml)({ id, name, tools });
  const file = fileOf(id, format);
  return (
    <Card withBorder padding="md" maw={960}>
      <Stack>
        <Group align="flex-start" gap="md">
          <TextInput
            label="ID"
            value={id}
            onChange={(event) => setId(event.currentTarget.value.trim())}
            error={trouble}
            maxLength={64}
            style={{ flex: "1 1 200px" }}
          />
          <TextInput
            label="Display name"
            value={name}
            onChange={(event) => setName(event.currentTarget.value)}
            maxLength={200}
            style={{ flex: "2 1 260px" }}
          />
        </Group>
        <Group justify="space-between">
          <SegmentedControl
            aria-label="Format"
            value={format}
            data={[
              { value: "toml", label: "TOML" },
              { value: "json", label: "JSON" },
            ]}
            onChange={(value) => setFormat(value === "json" ? "json" : "toml")}
          />
          <Button
            leftSection={<IconDownload size={16} />}
            disabled={trouble !== ""}
            onClick={() => saveFile(new Blob([text]), file)}
          >
            Save {file}
          </Button>
        </Group>
        <CodeBlock text={text} label="manifest" />
        <Text size="sm">
          <span className="mono">toolgate skills check {file}</span> checks whether its servers and tools are
          here. <span className="mono">toolgate skills apply {file}</span> creates a task from it.
        </Text>
      </Stack>
    </Card>
  );
}
