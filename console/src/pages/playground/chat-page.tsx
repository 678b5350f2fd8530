/** Chat with a model that has the tools of a task. */
import { Autocomplete, Button, Card, Group, Select, Stack, Text, Textarea } from "@mantine/core";
import { IconPlayerStop, IconSend } from "@tabler/icons-react";
import { queryOptions, useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, useEffect, useRef } from "react";
import { Link, useSearchParams } from "react-router";
import { useMay, useMe } from "@/api/me";
import { credential } from "@/api/session";
import { useTyped } from "@/api/typed";
import { Empty, Failure, Skeletons } from "@/parts/states";
import { TaskChoice } from "@/parts/task-choice";
import { count } from "@/parts/time";
import { visibleText } from "@/parts/visible";
import { upstreamsQuery } from "../models/queries";
import { TurnShown } from "./chat-turn";
import { failureOf, useChat } from "./use-chat";

/** The models of all chat upstreams that respond. */
const modelsQuery = queryOptions({
  queryKey: ["chat_upstream", "models"],
  queryFn: async ({ signal }): Promise<string[]> => {
    const token = credential();
    const headers: Record<string, string> = token === null ? {} : { Authorization: `Bearer ${token}` };
    const response = await fetch("/v1/models", { headers, signal });
    if (!response.ok) throw await failureOf(response);
    const body = (await response.json()) as { data?: { id?: unknown }[] };
    const ids = (body.data ?? []).map((one) => one.id).filter((one) => typeof one === "string");
    return [...new Set(ids)].sort();
  },
  retry: false,
});

export function ChatPage() {
  const mayRead = useMay("viewer");
  const { calls_tools } = useMe();
  const models = useQuery({ ...modelsQuery, enabled: calls_tools });
  const upstreams = useQuery({ ...upstreamsQuery, enabled: mayRead && calls_tools });
  if (!calls_tools) return null;
  const isConfigured = upstreams.data?.some((one) => one.enabled) ?? false;
  if (models.data === undefined && !models.isError) return <Skeletons what="Loading the models" />;
  if (mayRead && upstreams.data === undefined && !upstreams.isError)
    return <Skeletons what="Loading the models" />;
  if (models.isError) return <Failure error={models.error} onRetry={() => void models.refetch()} />;
  if (models.data?.length === 0 && !isConfigured) return <NoModels />;
  return <Chat models={models.data ?? []} />;
}

function NoModels() {
  const mayWrite = useMay("admin");
  return (
    <Empty
      title="No model yet"
      firstStep={
        mayWrite ? (
          <Button component={Link} to="/models/-/new">
            Add a chat upstream
          </Button>
        ) : undefined
      }
    >
      {mayWrite
        ? "A chat needs a model. Add a server that speaks the OpenAI API: OpenAI, Azure, Ollama, vLLM, llama.cpp and most others."
        : "A chat needs a model. Ask an admin to add a chat upstream."}
    </Empty>
  );
}

function useChoice() {
  const [params, setParams] = useSearchParams();
  const set = (name: string, value: string) =>
    setParams(
      (old) => {
        if (value) old.set(name, value);
        else old.delete(name);
        return old;
      },
      { replace: true },
    );
  return { task: params.get("task") ?? "", model: params.get("model") ?? "", set };
}

function Chat({ models }: { readonly models: readonly string[] }) {
  const { task, model: named, set } = useChoice();
  const chat = useChat();
  const model = named || chat.turns.at(-1)?.model || models[0] || "";
  useTyped(chat.typed !== "");
  const isReady = chat.typed.trim() !== "" && model.trim() !== "" && !chat.isRunning;
  const send = () => {
    if (!isReady) return;
    chat.type("");
    void chat.ask(chat.typed.trim(), model.trim(), task);
  };
  return (
    <Stack maw={900}>
      <Group align="flex-end" gap="md">
        <ModelChoice models={models} value={model} onChange={(value) => set("model", value)} />
        <TaskChoice value={task} onChange={(value) => set("task", value)} about={TASK} />
      </Group>
      <Stack gap="lg" component="section" aria-label="Conversation">
        {chat.turns.map((turn, place) => (
          <TurnShown
            // biome-ignore lint/suspicious/noArrayIndexKey: turns are only added at the end
            key={place}
            turn={turn}
            onAgain={
              chat.isRunning || model === "" ? undefined : () => void chat.ask(turn.asked, model, task)
            }
          />
        ))}
      </Stack>
      <Composer
        typed={chat.typed}
        onType={chat.type}
        onSend={send}
        onStop={chat.isRunning ? chat.stop : undefined}
        isReady={isReady}
        isFirst={chat.turns.length === 0}
      />
      {chat.turns.length > 0 ? <Total chat={chat} /> : null}
    </Stack>
  );
}

const TASK = "Without one, the model gets all your tools.";

interface ModelChoiceProps {
  readonly models: readonly string[];
  readonly value: string;
  readonly onChange: (value: string) => void;
}

/** Some servers of models list none: then one types a name. */
function ModelChoice({ models, value, onChange }: ModelChoiceProps) {
  const about = "As the chat upstreams list them.";
  if (models.length === 0)
    return (
      <Autocomplete
        label="Model"
        description="No chat upstream lists its models now. Type a name."
        value={value}
        onChange={onChange}
        w={320}
      />
    );
  const all = value === "" || models.includes(value) ? models : [value, ...models];
  return (
    <Select
      label="Model"
      description={about}
      data={all.map((one) => ({ value: one, label: visibleText(one) }))}
      value={value || null}
      onChange={(next) => onChange(next ?? "")}
      searchable
      allowDeselect={false}
      limit={100}
      w={320}
    />
  );
}

interface ComposerProps {
  readonly typed: string;
  readonly onType: (text: string) => void;
  readonly onSend: () => void;
  /** Undefined: nothing runs. */
  readonly onStop: (() => void) | undefined;
  readonly isReady: boolean;
  readonly isFirst: boolean;
}

function Composer({ typed, onType, onSend, onStop, isReady, isFirst }: ComposerProps) {
  const field = useRef<HTMLTextAreaElement>(null);
  const isRunning = onStop !== undefined;
  useEffect(() => {
    if (!isRunning) field.current?.focus({ preventScroll: true });
  }, [isRunning]);
  const onKeyDown = (event: KeyboardEvent) => {
    if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
    event.preventDefault();
    onSend();
  };
  return (
    <Card withBorder padding="sm">
      <form
        aria-label="Message"
        onSubmit={(event) => {
          event.preventDefault();
          onSend();
        }}
      >
        <Stack gap="xs">
          <Textarea
            ref={field}
            aria-label="Message"
            placeholder={isFirst ? "Ask something that needs a tool" : "Ask on"}
            value={typed}
            onChange={(event) => onType(event.currentTarget.value)}
            onKeyDown={onKeyDown}
            autosize
            minRows={2}
            maxRows={12}
          />
          <Group justify="space-between">
            <Text size="xs" c="dimmed">
              Enter sends, Shift+Enter begins a line. Tools are really called.
            </Text>
            {onStop ? (
              <Button variant="default" leftSection={<IconPlayerStop size={16} />} onClick={onStop}>
                Stop
              </Button>
            ) : (
              <Button type="submit" disabled={!isReady} leftSection={<IconSend size={16} />}>
                Send
              </Button>
            )}
          </Group>
        </Stack>
      </form>
    </Card>
  );
}

/** What the conversation has cost so far. */
function Total({ chat }: { readonly chat: ReturnType<typeof useChat> }) {
  const costs = chat.turns.flatMap((one) => (one.cost ? [one.cost] : []));
  const sum = (of: (cost: (typeof costs)[number]) => number) => costs.reduce((all, one) => all + of(one), 0);
  const calls = chat.turns.flatMap((one) => one.steps).filter((one) => one.kind === "tool").length;
  return (
    <Group justify="space-between">
      <Text size="sm" c="dimmed" role="status">
        {calls === 1 ? "1 tool call" : `${count(calls)} tool calls`}
        {costs.length > 0
          ? `; ${count(sum((one) => one.input))} tokens in, ${count(sum((one) => one.output))} out`
          : ""}
      </Text>
      <Button variant="default" size="xs" onClick={chat.clear}>
        New chat
      </Button>
    </Group>
  );
}
