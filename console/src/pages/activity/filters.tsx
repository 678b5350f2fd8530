/** The filters of the audit log: all that the API has; active ones are visible. */
import {
  Badge,
  Button,
  CloseButton,
  Collapse,
  Group,
  NativeSelect,
  SimpleGrid,
  Stack,
  TextInput,
} from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconFilter } from "@tabler/icons-react";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { type Asked, fromLocal, OUTCOMES, TEXTS, TYPES, toLocal } from "./filter";

interface FiltersProps {
  readonly asked: Asked;
  readonly onChange: (asked: Asked) => void;
}

export function Filters({ asked, onChange }: FiltersProps) {
  const [isOpen, { toggle }] = useDisclosure();
  const choices = (values: readonly string[], any: string) => [{ value: "", label: any }, ...values];
  return (
    <Stack gap="xs" mb="sm">
      <Group align="flex-end" gap="sm">
        <NativeSelect
          label="Type"
          data={choices(TYPES, "Any")}
          value={asked.type ?? ""}
          onChange={({ currentTarget: { value } }) =>
            onChange({ ...asked, type: TYPES.find((one) => one === value) })
          }
        />
        <NativeSelect
          label="Outcome"
          data={choices(OUTCOMES, "Any")}
          value={asked.outcome ?? ""}
          onChange={({ currentTarget: { value } }) =>
            onChange({ ...asked, outcome: OUTCOMES.find((one) => one === value) })
          }
        />
        <Button
          variant="default"
          leftSection={<IconFilter size={16} />}
          onClick={toggle}
          aria-expanded={isOpen}
        >
          More filters
        </Button>
      </Group>
      <Collapse expanded={isOpen}>
        <TextFilters asked={asked} onChange={onChange} />
      </Collapse>
      <Chips asked={asked} onChange={onChange} />
    </Stack>
  );
}

function TextFilters({ asked, onChange }: FiltersProps) {
  return (
    <SimpleGrid cols={{ base: 1, xs: 2, md: 4 }} p={4}>
      {TEXTS.map(([name, title]) => (
        <TextInput
          key={`${name} ${asked[name] ?? ""}`}
          label={title}
          defaultValue={asked[name] ?? ""}
          onBlur={({ currentTarget: { value } }) => {
            if (value !== (asked[name] ?? "")) onChange({ ...asked, [name]: value || undefined });
          }}
          onKeyDown={(event) => {
            if (event.key === "Enter") event.currentTarget.blur();
          }}
        />
      ))}
      {(["since", "until"] as const).map((name) => (
        <TextInput
          key={name}
          type="datetime-local"
          label={name === "since" ? "From" : "Until"}
          value={toLocal(asked[name])}
          onChange={({ currentTarget: { value } }) => onChange({ ...asked, [name]: fromLocal(value) })}
        />
      ))}
    </SimpleGrid>
  );
}

/** The active filters, each with a button to remove it. */
function Chips({ asked, onChange }: FiltersProps) {
  const set = TEXTS.filter(([name]) => asked[name]);
  if (set.length === 0) return null;
  return (
    <Group gap="xs">
      {set.map(([name, title]) => (
        <Badge
          key={name}
          variant="light"
          tt="none"
          size="lg"
          rightSection={
            <CloseButton
              size="xs"
              aria-label={`Remove filter ${title}: ${visibleText(asked[name] ?? "")}`}
              onClick={() => onChange({ ...asked, [name]: undefined })}
            />
          }
        >
          {title}: <Untrusted text={asked[name] ?? ""} mono />
        </Badge>
      ))}
    </Group>
  );
}
