/** The limits of a task's calls and chats. A budget can only lower a limit. */
import { NumberInput, Select, SimpleGrid, Switch } from "@mantine/core";
import { HelpLabel } from "@/parts/help";
import { BUDGETS, type Budget, type Draft } from "./draft";
import type { FieldsProps } from "./policy-fields";

const APPROVALS = [
  { value: "never", label: "never, unless the server requires it" },
  { value: "policy", label: "for tools that are not read-only" },
  { value: "always", label: "for every call" },
] as const;
const MODES = [
  { value: "inject", label: "inject: the gateway offers its tools and calls them" },
  { value: "passthrough", label: "passthrough: chats pass unchanged" },
] as const;

export function ChatFields({ draft, set }: FieldsProps) {
  return (
    <>
      <Select
        label={<HelpLabel of="task.config.mcp.approval_policy" label="Approval required" />}
        aria-label="Approval required"
        description="The task can require more approvals than its servers, not fewer."
        placeholder="As the servers require"
        value={draft.approval}
        data={[...APPROVALS]}
        onChange={(value) => set({ approval: known(APPROVALS, value) })}
        clearable
        clearButtonProps={{ "aria-label": "Clear: Approval required" }}
      />
      <Switch
        label={<HelpLabel of="task.config.mcp.approval_in_place" label="Elicited approval" />}
        aria-label="Elicited approval"
        description="On: a client that supports elicitation may ask its user. Off: only operators approve."
        checked={draft.isInPlace}
        onChange={(event) => set({ isInPlace: event.currentTarget.checked })}
      />
      <Select
        label={<HelpLabel of="task.config.chat.mode" label="Chat mode" />}
        aria-label="Chat mode"
        description="What the chat endpoints do with this task's tools."
        placeholder="As the chat upstream"
        value={draft.mode}
        data={[...MODES]}
        onChange={(value) => set({ mode: known(MODES, value) })}
        clearable
        clearButtonProps={{ "aria-label": "Clear: Chat mode" }}
      />
      <SimpleGrid cols={{ base: 1, xs: 2 }}>
        {(Object.keys(BUDGETS) as Budget[]).map((name) => (
          <NumberInput
            key={name}
            label={<HelpLabel of={`chat_upstream.budgets.${name}`} label={BUDGETS[name].title} />}
            aria-label={BUDGETS[name].title}
            placeholder="Default"
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
