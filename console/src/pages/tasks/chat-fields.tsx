/** How calls and chats of a task are bounded. Every budget can only narrow what holds without it. */
import { NumberInput, Select, SimpleGrid, Switch } from "@mantine/core";
import { BUDGETS, type Budget, type Draft } from "./draft";
import type { FieldsProps } from "./policy-fields";

const APPROVALS = [
  { value: "never", label: "never, unless the server asks for it" },
  { value: "policy", label: "for tools that do more than read" },
  { value: "always", label: "for every call" },
] as const;
const MODES = [
  { value: "inject", label: "inject: the gateway offers its tools and calls them" },
  { value: "passthrough", label: "passthrough: chats go through untouched" },
] as const;

export function ChatFields({ draft, set }: FieldsProps) {
  return (
    <>
      <Select
        label="A person approves"
        description="The task may ask for more than a server does, and for no less."
        placeholder="As its servers have it"
        value={draft.approval}
        data={[...APPROVALS]}
        onChange={(value) => set({ approval: known(APPROVALS, value) })}
        clearable
        clearButtonProps={{ "aria-label": "Clear: A person approves" }}
      />
      <Switch
        label="Ask who calls"
        description="Off: only operators approve, also where the caller's client could ask its user."
        checked={draft.isInPlace}
        onChange={(event) => set({ isInPlace: event.currentTarget.checked })}
      />
      <Select
        label="Chat"
        description="What the chat doors do for this task."
        placeholder="As the chat upstream has it"
        value={draft.mode}
        data={[...MODES]}
        onChange={(value) => set({ mode: known(MODES, value) })}
        clearable
        clearButtonProps={{ "aria-label": "Clear: Chat" }}
      />
      <SimpleGrid cols={{ base: 1, xs: 2 }}>
        {(Object.keys(BUDGETS) as Budget[]).map((name) => (
          <NumberInput
            key={name}
            label={BUDGETS[name].title}
            placeholder="As usual"
            value={draft.budgets[name] ?? ""}
            min={BUDGETS[name].min}
            thousandSeparator=","
            allowDecimal={false}
            onChange={(value) => set({ budgets: budgeted(draft.budgets, name, value) })}
          />
        ))}
      </SimpleGrid>
    </>
  );
}

function known<T extends string>(choices: readonly { readonly value: T }[], value: string | null): T | null {
  return choices.find((one) => one.value === value)?.value ?? null;
}

function budgeted(budgets: Draft["budgets"], name: Budget, value: number | string): Draft["budgets"] {
  const { [name]: _before, ...others } = budgets;
  return typeof value === "number" ? { ...others, [name]: value } : others;
}
