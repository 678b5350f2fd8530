/** One tool in the playground: its form, the call as code, and the result. */
import { Alert, Anchor, Button, Card, Grid, Group, Stack, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { Link, useSearchParams } from "react-router";
import { useMe } from "@/api/me";
import { PageHead } from "@/parts/page-head";
import { Prose } from "@/parts/prose";
import { Empty, Loaded } from "@/parts/states";
import { TaskChoice } from "@/parts/task-choice";
import { Untrusted } from "@/parts/untrusted";
import { serverOf, toolPath, whyPath } from "../catalog/paths";
import { type Tool, toolsQuery } from "../catalog/queries";
import { read } from "./arguments";
import { CallFailure } from "./call-failure";
import { CallForm } from "./call-form";
import { CallResult } from "./call-result";
import { CodePanel } from "./code-panel";
import { NoCalls } from "./no-calls";
import { toolScopeQuery } from "./queries";
import { useCall } from "./use-call";

/** What is shown of a description at the head; all of it is in the catalog. */
const ABOUT_CHARS = 240;

export function ToolPage({ name }: { readonly name: string }) {
  const [params] = useSearchParams();
  const task = params.get("task") ?? "";
  const server = serverOf(name);
  const query = useQuery({ ...toolsQuery(server), enabled: server !== "", retry: false });
  if (server === "" || (query.isError && query.data === undefined))
    return <Missing name={name} task={task} />;
  return (
    <Loaded query={query} what="Loading the tool">
      {(tools) => {
        const tool = tools.find((one) => one.fullName === name);
        return tool ? <Trial tool={tool} task={task} /> : <Missing name={name} task={task} />;
      }}
    </Loaded>
  );
}

function Missing({ name, task }: { readonly name: string; readonly task: string }) {
  return (
    <Empty
      title="Tool not found"
      firstStep={
        <>
          <Button component={Link} to={listPath(task)}>
            Choose another tool
          </Button>
          <Button variant="default" component={Link} to={whyPath(name)}>
            Ask the scope lens
          </Button>
        </>
      }
    >
      <Untrusted text={name} mono /> does not exist, or you cannot reach it.
    </Empty>
  );
}

function listPath(task: string, server = ""): string {
  const query = new URLSearchParams({ ...(server ? { server } : {}), ...(task ? { task } : {}) });
  return `/playground${query.size > 0 ? `?${query}` : ""}`;
}

function Trial({ tool, task }: { readonly tool: Tool; readonly task: string }) {
  const server = serverOf(tool.fullName);
  return (
    <>
      <PageHead
        title={tool.fullName}
        above={[{ title: server, path: listPath(task, server) }]}
        about={<Prose text={(tool.description || tool.title || "").slice(0, ABOUT_CHARS)} />}
      >
        <Button variant="default" component={Link} to={toolPath(tool.fullName)}>
          Definition
        </Button>
        <Button variant="default" component={Link} to={listPath(task)}>
          Another tool
        </Button>
      </PageHead>
      <NoCalls />
      <Caller tool={tool} task={task} />
    </>
  );
}

function Caller({ tool, task }: { readonly tool: Tool; readonly task: string }) {
  const [, setParams] = useSearchParams();
  const { calls_tools, by } = useMe();
  const state = useCall(tool);
  const [isTried, setTried] = useState(false);
  const scope = useQuery(toolScopeQuery(tool.fullName, task)).data;
  const { value, partial, troubles } = read(state.field, state.typed);
  const shown = new Map(troubles.filter((one) => isTried || !one.isMissing).map((one) => [one.at, one.says]));
  const form = useRef<HTMLDivElement>(null);
  const submit = () => {
    setTried(true);
    if (value !== null && !state.isRunning) state.call({ args: value, task });
    else if (value === null) window.requestAnimationFrame(() => focusFirstTrouble(form.current));
  };
  const setTask = (next: string) =>
    setParams(
      (old) => {
        if (next) old.set("task", next);
        else old.delete("task");
        return old;
      },
      { replace: true },
    );
  const mcpUrl = scope?.url ?? "";
  const origin = originOf(mcpUrl);
  return (
    <Stack gap="md">
      <Grid gap="md">
        <Grid.Col span={{ base: 12, lg: 6 }} ref={form}>
          <Card withBorder padding="md">
            <Stack>
              <TaskChoice value={task} onChange={setTask} about="The call runs under this task's policy." />
              <NotInScope tool={tool.fullName} task={task} />
              {tool.source === "summary" ? (
                <Alert color="yellow" title="Summary only">
                  The schema is unknown until the server lists the tool. Enter the arguments as JSON.
                </Alert>
              ) : null}
              <Title order={2} size="h4">
                Arguments
              </Title>
              <CallForm
                field={state.field}
                typed={state.typed}
                setTyped={state.setTyped}
                troubles={shown}
                isReadOnly={tool.readOnly}
                isPossible={calls_tools}
                isRunning={state.isRunning}
                onCall={submit}
                onStop={state.stop}
              />
            </Stack>
          </Card>
        </Grid.Col>
        <Grid.Col span={{ base: 12, lg: 6 }}>
          <CodePanel
            call={{
              origin,
              mcpUrl,
              tool: tool.fullName,
              task,
              args: partial,
              needsKey: by !== "loopback",
            }}
            isIncomplete={value === null}
          />
        </Grid.Col>
      </Grid>
      <Shown tool={tool.fullName} state={state} />
    </Stack>
  );
}

function originOf(url: string): string {
  return URL.canParse(url) ? new URL(url).origin : window.location.origin;
}

function focusFirstTrouble(form: HTMLElement | null): void {
  form?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
}

/** The outcome, which is brought into view when it comes. */
function Shown({ tool, state }: { readonly tool: string; readonly state: ReturnType<typeof useCall> }) {
  const { outcome, isRunning, call } = state;
  const place = useRef<HTMLDivElement>(null);
  const known = useRef(outcome);
  useEffect(() => {
    if (outcome !== null && outcome !== known.current) place.current?.scrollIntoView({ block: "nearest" });
    known.current = outcome;
  }, [outcome]);
  if (outcome === null) return null;
  const { args, task } = outcome;
  return (
    <div ref={place}>
      {outcome.answer ? (
        <CallResult answer={outcome.answer} tool={tool} />
      ) : (
        <CallFailure
          outcome={outcome}
          tool={tool}
          onRetry={() => call({ args, task })}
          isRunning={isRunning}
        />
      )}
    </div>
  );
}

/** Says before the call that it would be denied, and where to see why. */
function NotInScope({ tool, task }: { readonly tool: string; readonly task: string }) {
  const { data, error } = useQuery(toolScopeQuery(tool, task));
  if (error) return <Alert color="yellow" title={<Prose text={error.message} />} />;
  if (data === undefined || data.tools.includes(tool)) return null;
  return (
    <Alert
      color="yellow"
      title={task ? "The task does not have this tool" : "This tool is not in your scope"}
    >
      <Group gap="xs">
        {data.refusal ? <Prose text={data.refusal.message} /> : "A call would fail."}{" "}
        <Anchor component={Link} to={`${whyPath(tool)}${task ? `&task=${encodeURIComponent(task)}` : ""}`}>
          Why?
        </Anchor>
      </Group>
    </Alert>
  );
}
