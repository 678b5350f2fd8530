/** The call as code, to copy and run elsewhere. */
import { Card, SegmentedControl, Stack, Text, Title } from "@mantine/core";
import { useState } from "react";
import { CodeBlock } from "@/parts/copy";
import { Prose } from "@/parts/prose";
import { type CodedCall, codeOf, type Language, NEEDS } from "./code";

const LANGUAGES: readonly { readonly value: Language; readonly label: string }[] = [
  { value: "curl", label: "curl" },
  { value: "python", label: "Python" },
  { value: "typescript", label: "TypeScript" },
];

interface CodePanelProps {
  readonly call: CodedCall;
  /** Whether something is missing in the arguments. */
  readonly isIncomplete: boolean;
}

export function CodePanel({ call, isIncomplete }: CodePanelProps) {
  const [language, setLanguage] = useState<Language>("curl");
  const label = LANGUAGES.find((one) => one.value === language)?.label ?? "";
  return (
    <Card withBorder padding="md" component="section" aria-label="Call as code">
      <Stack gap="sm">
        <Title order={2} size="h4">
          As code
        </Title>
        <SegmentedControl
          aria-label="Language"
          value={language}
          data={[...LANGUAGES]}
          onChange={(value) => setLanguage(value as Language)}
        />
        <CodeBlock text={codeOf(language, call)} label={label} hasWholeLines isWhole />
        <Text size="sm" c="dimmed" component="div">
          <Prose
            text={`Needs: ${NEEDS[language]}${call.needsKey ? " Set `TOOLGATE_KEY` to your key." : ""}`}
          />
          {isIncomplete ? " Some arguments are missing or invalid." : ""}
        </Text>
      </Stack>
    </Card>
  );
}
