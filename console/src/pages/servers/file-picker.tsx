/** The text of a file that the user chooses or drops. It goes into the field only. */
import { Button, FileButton, Text } from "@mantine/core";
import { IconUpload } from "@tabler/icons-react";
import { type DragEvent, useState } from "react";
import { bytes } from "@/parts/time";

/** More than a request may hold. */
const MOST_BYTES = 3 * 1024 * 1024;

async function read(file: File): Promise<{ text: string } | { problem: string }> {
  if (file.size > MOST_BYTES) return { problem: `file too large: the limit is ${bytes(MOST_BYTES)}` };
  return { text: await file.text() };
}

function useReader(onText: (text: string) => void) {
  const [problem, setProblem] = useState<string | undefined>();
  const take = async (file: File | null | undefined) => {
    if (!file) return;
    const found = await read(file);
    setProblem("problem" in found ? found.problem : undefined);
    if ("text" in found) onText(found.text);
  };
  return { problem, take };
}

export function useDropped(onText: (text: string) => void) {
  const { problem, take } = useReader(onText);
  const onDrop = (event: DragEvent) => {
    if (event.dataTransfer.files.length === 0) return;
    event.preventDefault();
    void take(event.dataTransfer.files[0]);
  };
  return { problem, onDrop };
}

export function FilePicker({ onText }: { readonly onText: (text: string) => void }) {
  const { problem, take } = useReader(onText);
  return (
    <>
      {problem ? (
        <Text size="sm" c="var(--mantine-color-error)">
          {problem}
        </Text>
      ) : null}
      <FileButton onChange={(file) => void take(file)} accept=".json,.jsonc,.toml,.yaml,.yml,.txt">
        {(props) => (
          <Button {...props} variant="default" leftSection={<IconUpload size={16} />}>
            Choose a file
          </Button>
        )}
      </FileButton>
    </>
  );
}
