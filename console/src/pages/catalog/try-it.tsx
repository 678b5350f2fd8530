/** A real call of a tool, with arguments from a form made of its schema. */
import { Alert, Button, Group, SegmentedControl, Stack, Text, Textarea } from "@mantine/core";
import { IconPlayerPlay } from "@tabler/icons-react";
import { useMutation } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { useSearchParams } from "react-router";
import { api, take } from "@/api/client";
import { useMe } from "@/api/me";
import { useTyped } from "@/api/typed";
import { MemberFields } from "@/parts/schema-form";
import { type Field, fieldOf, type JsonObject } from "@/parts/schema-form-model";
import { ROOT } from "@/parts/schema-form-write";
import { isSame } from "@/parts/use-draft";
import { begin, hasForm, read, type Typed, toForm, toJson } from "./arguments";
import { CallFailure, CallResult } from "./call-result";
import type { Tool } from "./queries";
import { TaskChoice } from "./task-choice";

export function TryIt({ tool }: { readonly tool: Tool }) {
  const { calls_tools } = useMe();
  if (!calls_tools)
    return (
      <Alert color="blue" title="Calls are not available here">
        This process is control plane only; its nodes call tools. Call the tool through a node, or open the
        console of a gateway with a node.
      </Alert>
    );
  return <Trial tool={tool} />;
}

function useTrial(tool: Tool, task: string) {
  const field = useMemo(() => fieldOf(tool.inputSchema), [tool.inputSchema]);
  const [typed, setTyped] = useState(() => begin(field));
  useTyped(!isSame(typed, begin(field)));
  const [isTried, setTried] = useState(false);
  const call = useMutation({
    mutationFn: (args: JsonObject) =>
      take(
        api.POST("/api/v1/mcp/call", {
          params: { query: { tools: tool.fullName, ...(task ? { task } : {}) } },
          body: { name: tool.fullName, arguments: { ...args } },
        }),
      ),
  });
  const { value, troubles } = read(field, typed);
  const shown = new Map(troubles.filter((one) => isTried || !one.isMissing).map((one) => [one.at, one.says]));
  const submit = () => {
    setTried(true);
    if (value !== null) call.mutate(value);
  };
  return { field, typed, setTyped, shown, submit, call };
}

function Trial({ tool }: { readonly tool: Tool }) {
  const [params, setParams] = useSearchParams();
  const task = params.get("task") ?? "";
  const { field, typed, setTyped, shown, submit, call } = useTrial(tool, task);
  const setTask = (value: string) =>
    setParams(
      (old) => {
        if (value) old.set("task", value);
        else old.delete("task");
        return old;
      },
      { replace: true },
    );
  return (
    <Stack maw={960}>
      <form
        aria-label="Try it"
        onSubmit={(event) => {
          event.preventDefault();
          submit();
        }}
      >
        <Stack>
          <TaskChoice value={task} onChange={setTask} about="The call runs under this task's policy." />
          <Arguments field={field} typed={typed} setTyped={setTyped} troubles={shown} />
          <Group>
            <Button type="submit" loading={call.isPending} leftSection={<IconPlayerPlay size={16} />}>
              Call tool
            </Button>
            <Text size="sm" c="dimmed" style={{ flex: "1 1 240px" }}>
              This is a real call. {tool.readOnly ? "" : "The tool may change data. "}Policy, pins, approvals
              and audit apply as for every caller.
            </Text>
          </Group>
          {shown.size > 0 ? (
            <Text size="sm" c="var(--mantine-color-error)" role="alert">
              {shown.size === 1 ? "One field is" : `${shown.size} fields are`} invalid.
            </Text>
          ) : null}
        </Stack>
      </form>
      {call.isError ? <CallFailure error={call.error} /> : null}
      {call.data ? <CallResult answer={call.data} /> : null}
    </Stack>
  );
}

interface ArgumentsProps {
  readonly field: Field;
  readonly typed: Typed;
  readonly setTyped: (typed: Typed) => void;
  readonly troubles: ReadonlyMap<string, string>;
}

function Arguments({ field, typed, setTyped, troubles }: ArgumentsProps) {
  const [isStuck, setStuck] = useState(false);
  const turn = (mode: string) => {
    const next = mode === "json" ? toJson(field, typed) : toForm(field, typed);
    setStuck(next === null);
    if (next !== null) setTyped(next);
  };
  return (
    <Stack gap="sm">
      {hasForm(field) ? (
        <SegmentedControl
          aria-label="Argument input"
          value={typed.mode}
          data={[
            { value: "form", label: "Form" },
            { value: "json", label: "JSON" },
          ]}
          onChange={turn}
          style={{ alignSelf: "flex-start" }}
        />
      ) : null}
      {isStuck ? (
        <Text size="sm">The form cannot show all of these arguments. Edit them as JSON.</Text>
      ) : null}
      {typed.mode === "json" ? (
        <Textarea
          label="Arguments"
          value={typed.text}
          onChange={(event) => setTyped({ mode: "json", text: event.currentTarget.value })}
          error={troubles.get(ROOT)}
          autosize
          minRows={4}
          maxRows={24}
          classNames={{ input: "mono" }}
          spellCheck={false}
        />
      ) : (
        <FormArguments field={field} typed={typed} setTyped={setTyped} troubles={troubles} />
      )}
    </Stack>
  );
}

function FormArguments({ field, typed, setTyped, troubles }: ArgumentsProps) {
  if (field.kind !== "group" || typed.mode !== "form") return null;
  if (field.members.length === 0) return <Text c="dimmed">This tool has no arguments.</Text>;
  const drafts = typed.draft && "members" in typed.draft ? typed.draft.members : [];
  return (
    <MemberFields
      members={field.members}
      drafts={drafts}
      onChange={(members) => setTyped({ mode: "form", draft: { members } })}
      at={ROOT}
      troubles={troubles}
    />
  );
}
