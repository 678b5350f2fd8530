/** Hand over access: a key, a task and the settings of a client, made in one step, and sent as one text. */
import { Alert, Anchor, Button, Grid, Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";
import type { Shapes } from "@/api/client";
import { useMay, useMe } from "@/api/me";
import { keysQuery, tasksQuery } from "@/api/records";
import { useTyped } from "@/api/typed";
import { connectQuery } from "@/parts/connect-panel";
import { SAVED } from "@/parts/leave-guard";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { usePlan } from "@/parts/use-plan";
import { picksIn } from "../catalog/picks";
import { usePicks } from "../catalog/use-picks";
import {
  type HandOverDraft,
  handOverKey,
  handOverProblems,
  NEW_HAND_OVER,
  pickedTask,
  taskIdOf,
} from "./hand-over-draft";
import { Effect, useOffer } from "./hand-over-effect";
import { HandOverFailed } from "./hand-over-failed";
import { Fields } from "./hand-over-fields";
import { HandedOver } from "./handed-over";
import { useHandOver } from "./use-hand-over";

export function HandOver() {
  const mayWrite = useMay("admin");
  return (
    <>
      <PageHead
        title="Hand over access"
        about="For a colleague or an agent: a key for one task, and the text to connect with it."
      />
      {mayWrite ? <Form /> : <Empty title="Only admins can create keys">Ask an admin.</Empty>}
    </>
  );
}

/** What was typed stays while one picks tools on another page. It is gone with the tab. */
let typed: { by: string; draft: HandOverDraft } | null = null;

function useKeptDraft(task: string, hasPicks: boolean) {
  const by = useMe().principal;
  const [draft, setDraft] = useState<HandOverDraft>(() => {
    const kept = typed?.by === by ? typed.draft : NEW_HAND_OVER;
    if (task !== "") return { ...kept, from: "task", task };
    return hasPicks ? { ...kept, from: "picks" } : kept;
  });
  const keep = (next: HandOverDraft) => {
    typed = { by, draft: next };
    setDraft(next);
  };
  return {
    draft,
    set: (part: Partial<HandOverDraft>) => keep({ ...draft, ...part }),
    forget: () => (typed = null),
  };
}

function usePickedNames() {
  const { picks } = usePicks();
  const [params] = useSearchParams();
  const named = picksIn(params.get("servers"), params.get("tools"));
  return {
    names: [...(named.size > 0 ? named : picks).keys()],
    isAsked: named.size > 0 || params.get("from") === "picks",
  };
}

function Form() {
  const [params] = useSearchParams();
  const { names, isAsked } = usePickedNames();
  const { draft, set, forget } = useKeptDraft(params.get("task") ?? "", isAsked);
  const keys = useQuery(keysQuery);
  const tasks = useQuery(tasksQuery);
  const [isTried, setTried] = useState(false);
  const [made, setMade] = useState<Shapes["KeyMade"] | null>(null);
  const known = {
    keys: new Set(keys.data?.map((one) => one.key_id)),
    tasks: new Set(tasks.data?.map((one) => one.task_id)),
  };
  const problems = handOverProblems(draft, known, names.length);
  const taskId = taskIdOf(draft, known);
  const isNew = draft.from === "picks";
  const body = pickedTask(draft.who, names);
  const plan = usePlan(
    isNew && taskId !== "" && names.length > 0 ? { kind: "task", id: taskId, body } : null,
  );
  const offer = useOffer(isNew ? { names } : { task: draft.task });
  const setup = useQuery({
    ...connectQuery({ task: taskId || undefined, needs_key: true, platform: draft.platform }),
    // The settings of a task whose name is being typed change only by that name.
    placeholderData: (before) => before,
  });
  const making = useHandOver((id) => set({ from: "task", task: id }));
  const isReady = Object.keys(problems).length === 0;
  useTyped(draft.who !== "" && made === null);

  const create = () => {
    setTried(true);
    if (!isReady || (isNew && !plan.data)) return;
    const task = isNew && plan.data ? { id: taskId, body, plan: plan.data.id } : null;
    making.mutate({ key: handOverKey(draft, known, Date.now()), task }, { onSuccess: setMade });
  };

  return (
    <Loaded query={setup} what="Loading the clients">
      {(found) =>
        made === null ? (
          <Grid gap="lg">
            <Grid.Col span={{ base: 12, lg: 7 }}>
              <form
                onSubmit={(event) => {
                  event.preventDefault();
                  create();
                }}
              >
                <Fields
                  draft={draft}
                  set={set}
                  known={known}
                  problems={isTried ? problems : {}}
                  picked={names.length}
                  clients={found.clients}
                />
                <Stack gap="md" mt="md">
                  {making.isError ? <HandOverFailed error={making.error} onAgain={create} /> : null}
                  <Group>
                    <Button
                      type="submit"
                      loading={making.isPending}
                      disabled={isNew && isReady && !plan.isCurrent}
                    >
                      Create and hand over
                    </Button>
                    <Button variant="default" component={Link} to="/keys">
                      Cancel
                    </Button>
                  </Group>
                </Stack>
              </form>
            </Grid.Col>
            <Grid.Col span={{ base: 12, lg: 5 }}>
              <Effect offer={offer} url={found.url} taskId={taskId} plan={isNew ? plan : null} />
            </Grid.Col>
          </Grid>
        ) : (
          <Done
            made={made}
            draft={draft}
            found={found}
            tools={offer.data?.tools.length ?? 0}
            onEnd={forget}
          />
        )
      }
    </Loaded>
  );
}

interface DoneProps {
  readonly made: Shapes["KeyMade"];
  readonly draft: HandOverDraft;
  readonly found: Shapes["ConnectResponse"];
  readonly tools: number;
  readonly onEnd: () => void;
}

function Done({ made, draft, found, tools, onEnd }: DoneProps) {
  const navigate = useNavigate();
  const keyPath = `/keys/${encodeURIComponent(made.key_id)}`;
  return (
    <HandedOver
      made={made}
      who={draft.who.trim()}
      found={found}
      clientId={draft.client}
      tools={tools}
      keyPath={keyPath}
      onDone={(to) => {
        onEnd();
        void navigate(to, { replace: true, state: SAVED });
      }}
    >
      <Alert color="green" title="Access is ready">
        <Text size="sm" component="div">
          The key <Untrusted text={made.key_id} mono /> reaches task{" "}
          <Anchor
            c="inherit"
            underline="always"
            component={Link}
            to={`/tasks/${encodeURIComponent(made.default_task ?? "")}`}
            target="_blank"
          >
            <Untrusted text={made.default_task ?? ""} mono />
          </Anchor>{" "}
          and nothing else.
        </Text>
      </Alert>
    </HandedOver>
  );
}
