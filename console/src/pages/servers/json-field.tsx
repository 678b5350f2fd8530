/** The whole record as JSON. */
import { List, Stack, Textarea } from "@mantine/core";
import { Untrusted } from "@/parts/untrusted";
import { type Problem, unplaced } from "./problems";

interface JsonFieldProps {
  readonly text: string;
  readonly onChange: (text: string) => void;
  readonly problems: readonly Problem[];
}

export function JsonField({ text, onChange, problems }: JsonFieldProps) {
  const elsewhere = unplaced(problems);
  const own = problems.filter((one) => !elsewhere.includes(one));
  return (
    <Stack gap="xs">
      <Textarea
        label="Record"
        value={text}
        onChange={(event) => onChange(event.currentTarget.value)}
        error={problems.length > 0}
        autosize
        minRows={12}
        maxRows={36}
        classNames={{ input: "mono" }}
        spellCheck={false}
      />
      <List size="sm" c="var(--mantine-color-error)">
        {own.map((one) => (
          <List.Item key={one.field + one.problem}>
            <Untrusted text={`${one.field}: ${one.problem}`} />
          </List.Item>
        ))}
      </List>
    </Stack>
  );
}
