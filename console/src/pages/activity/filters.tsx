/** The filters of the audit log: all that the API has. Active ones are chips. */
import { Button, Collapse, Group, Select, SimpleGrid, Stack, TextInput } from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconFilter } from "@tabler/icons-react";
import { FilterChips } from "@/parts/filter-row";
import { moment } from "@/parts/time";
import { type TimeRange, TimeRangePicker } from "@/parts/time-range";
import { type Asked, fromLocal, OUTCOME_WORDS, OUTCOMES, TEXTS, TYPE_WORDS, TYPES, toLocal } from "./filter";

interface FiltersProps {
  readonly asked: Asked;
  readonly onChange: (asked: Asked) => void;
}

export function Filters({ asked, onChange, time }: FiltersProps & { readonly time: TimeRange }) {
  const [isOpen, { toggle }] = useDisclosure();
  const hasTimes = asked.since !== undefined || asked.until !== undefined;
  return (
    <Stack gap="xs" mb="sm" role="search" aria-label="Filter">
      <Group align="center" gap="xs">
        <Select
          aria-label="Type"
          placeholder="Any type"
          data={TYPES.map((value) => ({ value, label: TYPE_WORDS[value] }))}
          value={asked.type ?? null}
          onChange={(value) => onChange({ ...asked, type: TYPES.find((one) => one === value) })}
          clearable
          w={180}
        />
        <Select
          aria-label="Outcome"
          placeholder="Any outcome"
          data={OUTCOMES.map((value) => ({ value, label: OUTCOME_WORDS[value] }))}
          value={asked.outcome ?? null}
          onChange={(value) => onChange({ ...asked, outcome: OUTCOMES.find((one) => one === value) })}
          clearable
          w={210}
        />
        {hasTimes ? null : <TimeRangePicker time={time} />}
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

function Chips({ asked, onChange }: FiltersProps) {
  const texts = TEXTS.map(([name, label]) => [name, label, asked[name]] as const);
  const times = [
    ["since", "From", asked.since === undefined ? undefined : moment(asked.since)],
    ["until", "Until", asked.until === undefined ? undefined : moment(asked.until)],
  ] as const;
  return (
    <FilterChips
      chips={[...texts, ...times].flatMap(([name, label, text]) => (text ? [{ name, label, text }] : []))}
      onRemove={(name) => onChange({ ...asked, [name]: undefined })}
      onClear={() => onChange({})}
    />
  );
}
