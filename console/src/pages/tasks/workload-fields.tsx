/** The workload of a task: a WebAssembly module and its settings. */
import { Anchor, Autocomplete, NumberInput, SimpleGrid, Stack, Switch, TagsInput, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { api, take } from "@/api/client";
import { moduleName } from "@/pages/runs/names";
import { HelpLabel } from "@/parts/help";
import { UNTRUSTED_TAGS } from "@/parts/list-field";
import { Untrusted } from "@/parts/untrusted";
import type { Workload } from "./draft";
import type { FieldsProps } from "./policy-fields";
import { envOf, LIMITS, type Limit, linesOf, NEW_WORKLOAD } from "./workload";

export function WorkloadFields({ draft, set }: FieldsProps) {
  const { workload } = draft;
  const change = (part: Partial<Workload>) => set({ workload: { ...(workload ?? NEW_WORKLOAD), ...part } });
  return (
    <>
      <Switch
        label={<HelpLabel of="task.workload" label="Run a WebAssembly module" />}
        aria-label="Run a WebAssembly module"
        description="Off: the task is policy only."
        checked={workload !== null}
        onChange={(event) => set({ workload: event.currentTarget.checked ? NEW_WORKLOAD : null })}
      />
      {workload ? <Fields workload={workload} change={change} /> : null}
    </>
  );
}

function Fields({ workload, change }: { workload: Workload; change: (part: Partial<Workload>) => void }) {
  const modules = useQuery({
    queryKey: ["derived", "modules"],
    queryFn: ({ signal }) => take(api.GET("/admin/api/modules", { signal })),
  });
  const known = new Map(modules.data?.modules.map((one) => [one.sha256, one]));
  const chosen = known.get(workload.module);
  return (
    <>
      <Autocomplete
        label={<HelpLabel of="task.workload.module" label="Module" />}
        aria-label="Module"
        description={chosen ? `This is ${moduleName(chosen)}.` : "The SHA-256 of an uploaded module."}
        value={workload.module}
        data={[...known.keys()]}
        renderOption={({ option }) => {
          const one = known.get(option.value);
          return (
            <Stack gap={0}>
              <Untrusted text={one ? moduleName(one) : ""} />
              <Text size="xs" c="dimmed" className="mono">
                {option.value.slice(0, 16)}…
              </Text>
            </Stack>
          );
        }}
        limit={50}
        onChange={(module) => change({ module: module.trim() })}
        required
      />
      {modules.data?.modules.length === 0 ? (
        <Text size="sm">
          No module is uploaded yet.{" "}
          <Anchor component={Link} to="/runs?tab=modules" inherit>
            Upload one
          </Anchor>
        </Text>
      ) : null}
      <TagsInput
        {...UNTRUSTED_TAGS}
        label={<HelpLabel of="task.workload.args" label="Arguments" />}
        aria-label="Arguments"
        description="In order, after the module's name."
        value={[...(workload.args ?? [])]}
        onChange={(args) => change({ args })}
        splitChars={[]}
        allowDuplicates
        acceptValueOnBlur
      />
      <TagsInput
        {...UNTRUSTED_TAGS}
        label={<HelpLabel of="task.workload.env" label="Environment variables" />}
        aria-label="Environment variables"
        description="NAME=value. Not for secrets."
        value={linesOf(workload.env ?? {})}
        onChange={(lines) => change({ env: envOf(lines) })}
        splitChars={[]}
        acceptValueOnBlur
      />
      <Text size="sm" fw={600}>
        Limits per run
      </Text>
      <SimpleGrid cols={{ base: 1, xs: 2 }}>
        {(Object.keys(LIMITS) as Limit[]).map((name) => (
          <NumberInput
            key={name}
            label={<HelpLabel of={`task.workload.limits.${name}`} label={LIMITS[name].title} />}
            aria-label={LIMITS[name].title}
            value={workload.limits?.[name] ?? LIMITS[name].usual}
            min={LIMITS[name].min}
            max={LIMITS[name].max}
            thousandSeparator=","
            allowDecimal={false}
            onChange={(value) => {
              if (typeof value === "number") change({ limits: { ...workload.limits, [name]: value } });
            }}
          />
        ))}
        <NumberInput
          label={<HelpLabel of="task.workload.retries" label="Retries" />}
          aria-label="Retries"
          description="If the node is lost."
          value={workload.retries ?? 0}
          min={0}
          max={10}
          allowDecimal={false}
          onChange={(value) => (typeof value === "number" ? change({ retries: value }) : undefined)}
        />
      </SimpleGrid>
    </>
  );
}
