/** The plan of a change: its effect on the record and on every affected task. */
import { Alert, Badge, Card, Group, List, Stack, Text } from "@mantine/core";
import type { Shapes } from "@/api/client";
import { FieldDiff } from "./diff-view";
import { blindTasks, newServerWords, newTasks } from "./plan-words";
import { Prose } from "./prose";
import { Untrusted } from "./untrusted";
import { spoken } from "./use-plan";

type Plan = Shapes["PlanResponse"];

/** More tools than this of one kind are counted, not listed. */
const MOST = 40;

interface PlanPanelProps {
  readonly plan: Plan;
  /** How many tools of a new server are ticked, if that is known. */
  readonly offered?: number;
}

export function PlanPanel({ plan, offered }: PlanPanelProps) {
  return (
    <Stack gap="md">
      <Warnings warnings={plan.warnings} />
      {plan.changes.length === 0 ? <Text>No changes: the record is already like this.</Text> : null}
      {plan.changes.map((change) => (
        <Stack key={`${change.kind}/${change.id}`} gap={4}>
          <Group gap="xs">
            <Badge color={COLOURS[change.operation]} variant="light" tt="none">
              {change.operation}
            </Badge>
            <Text fw={600}>
              {spoken(change.kind)} <Untrusted text={change.id} mono />
            </Text>
          </Group>
          {change.operation === "changed" ? <FieldDiff fields={change.fields} /> : null}
        </Stack>
      ))}
      <TaskPlans plan={plan} offered={offered} />
    </Stack>
  );
}

const COLOURS: Readonly<Record<Shapes["ChangeShown"]["operation"], string>> = {
  added: "green",
  changed: "blue",
  removed: "red",
};

export function Warnings({ warnings }: { readonly warnings: readonly string[] }) {
  if (warnings.length === 0) return null;
  return (
    <Alert color="yellow" title="Warning">
      <List size="sm">
        {warnings.map((one) => (
          <List.Item key={one}>
            <Prose text={one} />
          </List.Item>
        ))}
      </List>
    </Alert>
  );
}

/** A task that no one can use is most likely a mistake. */
function BlindTasks({ ids }: { readonly ids: readonly string[] }) {
  return ids.map((id) => (
    <Alert key={id} color="yellow" title="No tools">
      The new task <Untrusted text={id} mono /> would see no tools. Select a default server, or a profile that
      selects servers, and check its lists of tools.
    </Alert>
  ));
}

function TaskPlans({ plan, offered }: PlanPanelProps) {
  const added = newTasks(plan);
  const blind = blindTasks(plan);
  const others = plan.unchanged - blind.length;
  const brought = newServerWords(plan, offered);
  return (
    <Stack gap="xs">
      <BlindTasks ids={blind} />
      {plan.tasks.map((task) => (
        <Card key={keyOf(task)} withBorder padding="sm">
          <Text fw={600}>
            {task.task_id === null ? "Callers without a task" : <Untrusted text={task.task_id} mono />}
            {task.share < 100 ? ` · ${task.share} % of its callers` : null}
          </Text>
          <Tools
            title={added.includes(task.task_id ?? "") ? "would see" : "gains"}
            tools={task.added}
            sign="+"
          />
          <Tools title="loses" tools={task.removed} sign="−" />
          <Tools title="may now request" tools={task.reach_added} sign="+" />
          <Tools title="may no longer request" tools={task.reach_removed} sign="−" />
          {task.refusal ? (
            <Text c="var(--mantine-color-error)" component="div">
              Requests would be denied: <Prose text={task.refusal.message} />
            </Text>
          ) : null}
          {task.problem ? (
            <Text c="var(--mantine-color-error)" component="div">
              <Prose text={task.problem} />
            </Text>
          ) : null}
        </Card>
      ))}
      {brought === "" ? null : <Text>{brought}</Text>}
      <Text c="dimmed" size="sm">
        {brought !== "" && plan.tasks.length === 0
          ? null
          : blind.length === 0 && plan.tasks.length === 0
            ? "No task is affected."
            : `${others} other ${others === 1 ? "task is" : "tasks are"} not affected.`}
        {plan.unlisted.length > 0 && brought === ""
          ? " The tools of new servers are unknown until they connect."
          : ""}
      </Text>
    </Stack>
  );
}

/** While its profile is rolled out, a task has an entry for each share that gains or loses alike. */
function keyOf({ task_id, share, added, removed }: Shapes["TaskPlan"]): string {
  return [task_id ?? "", share, added.length, removed.length].join("/");
}

function Tools({ title, tools, sign }: { title: string; tools: readonly string[]; sign: "+" | "−" }) {
  if (tools.length === 0) return null;
  return (
    <Text size="sm" component="div">
      {title} {tools.length}:{" "}
      <span className="mono">
        {tools.slice(0, MOST).map((one) => (
          <span key={one}>
            {sign}
            <Untrusted text={one} />{" "}
          </span>
        ))}
      </span>
      {tools.length > MOST ? `and ${tools.length - MOST} more` : null}
    </Text>
  );
}
