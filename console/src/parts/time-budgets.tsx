/** The rate limit and quotas of a task or key, across all nodes. */
import { NumberInput, SimpleGrid } from "@mantine/core";
import { HelpLabel, type HelpOf } from "./help";
import { BUDGET_WORDS, type TimeBudget, type TimeBudgets } from "./time-budget";

interface TimeBudgetFieldsProps {
  /** The field of the record, for its help. */
  readonly of?: HelpOf;
  readonly value: TimeBudgets;
  readonly onChange: (value: TimeBudgets) => void;
}

export function TimeBudgetFields({ value, onChange, of }: TimeBudgetFieldsProps) {
  const changed = (name: TimeBudget, typed: number | string): TimeBudgets => {
    const { [name]: _before, ...others } = value;
    return typeof typed === "number" ? { ...others, [name]: typed } : others;
  };
  return (
    <SimpleGrid cols={{ base: 1, sm: 3 }}>
      {(Object.keys(BUDGET_WORDS) as TimeBudget[]).map((name) => (
        <NumberInput
          key={name}
          label={of ? <HelpLabel of={of} label={BUDGET_WORDS[name]} /> : BUDGET_WORDS[name]}
          aria-label={BUDGET_WORDS[name]}
          placeholder="No limit"
          value={value[name] ?? ""}
          min={1}
          thousandSeparator=","
          allowDecimal={false}
          onChange={(typed) => onChange(changed(name, typed))}
        />
      ))}
    </SimpleGrid>
  );
}
