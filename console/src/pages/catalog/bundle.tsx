/** The URL of what is picked, in two forms: one that follows its packages, and a frozen list. */
import { Alert, Group, Loader, Radio, SimpleGrid, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { ConnectPanel } from "@/parts/connect-panel";
import { TaskChoice } from "@/parts/task-choice";
import { count } from "@/parts/time";
import { toolCount } from "./pick-bar";
import { followingQuery, MOST_URL_CHARS, type Picks, partsOf } from "./picks";
import { type Selected, selectedQuery } from "./queries";

interface BundleProps {
  readonly picks: Picks;
  /** Every picked tool, those of whole packages as they are now. */
  readonly names: readonly string[];
  readonly task: string;
  /** As the address has it; empty: what suits. */
  readonly form: string;
  readonly set: (name: string, value: string) => void;
}

export function Bundle({ picks, names, task, form, set }: BundleProps) {
  const { packages, tools } = partsOf(picks);
  const hasPackages = packages.length > 0;
  const single = tools.length > 0 ? ", and the picked single tools" : "";
  const chosen = hasPackages && form !== "frozen" ? "following" : "frozen";
  const queries = {
    following: hasPackages ? withTask(followingQuery(picks), task) : null,
    frozen: withTask({ tools: names.join(",") }, task),
  };
  const query = queries[chosen] ?? queries.frozen;
  return (
    <Stack maw={960}>
      <Group>
        <TaskChoice
          value={task}
          onChange={(value) => set("task", value)}
          about="With a task, its policy applies too."
        />
      </Group>
      <Radio.Group
        label="Tools in the URL"
        value={chosen}
        onChange={(value) => set("form", value === "frozen" ? "frozen" : "")}
      >
        <SimpleGrid cols={{ base: 1, sm: 2 }} mt="xs">
          <Form
            value="following"
            title="Follows its packages"
            about={
              hasPackages
                ? `Clients see every tool of the picked packages${single}. New tools of a package appear automatically.`
                : "To include new tools automatically, pick a whole package in the catalog."
            }
            query={queries.following}
          />
          <Form
            value="frozen"
            title="Frozen list"
            about="Clients see exactly the tools that are picked now. New tools do not appear."
            query={queries.frozen}
          />
        </SimpleGrid>
      </Radio.Group>
      {isTooLong(query) ? (
        <TooLong isFrozen={chosen === "frozen" && hasPackages} />
      ) : (
        <Connect query={query} />
      )}
    </Stack>
  );
}

const withTask = (query: Selected, task: string): Selected => (task ? { ...query, task } : query);

const isTooLong = (query: Selected) => (query.tools ?? query.servers ?? "").length > MOST_URL_CHARS;

interface FormProps {
  readonly value: string;
  readonly title: string;
  readonly about: string;
  /** Null: the picks have no such form. */
  readonly query: Selected | null;
}

function Form({ value, title, about, query }: FormProps) {
  return (
    <Radio.Card value={value} p="sm" disabled={query === null} aria-label={title}>
      <Group wrap="nowrap" align="flex-start" gap="sm">
        <Radio.Indicator disabled={query === null} />
        <Stack gap={4}>
          <Text fw={600}>{title}</Text>
          <Text size="sm">{about}</Text>
          {query === null ? null : <Size query={query} />}
        </Stack>
      </Group>
    </Radio.Card>
  );
}

/** The size of a client's tool list. Not requested for a URL that is too long. */
function Size({ query }: { readonly query: Selected }) {
  const found = useQuery({ ...selectedQuery(query), enabled: !isTooLong(query) }).data;
  if (isTooLong(query))
    return (
      <Text size="sm" c="dimmed">
        Too long for a URL
      </Text>
    );
  if (found === undefined) return <Loader size="xs" aria-label="Counting" />;
  return (
    <Text size="sm" c="dimmed">
      {toolCount(found.tools.length)}, about {count(found.tokens)} tokens
    </Text>
  );
}

function TooLong({ isFrozen }: { readonly isFrozen: boolean }) {
  return (
    <Alert color="yellow" title="Too many tools for a URL">
      Some clients do not accept a URL this long.{" "}
      {isFrozen ? "Choose the URL that follows its packages, or save" : "Pick whole packages, or save"} the
      skill manifest and create a task from it with <span className="mono">toolgate skills apply FILE</span>.
    </Alert>
  );
}

function Connect({ query }: { readonly query: Selected }) {
  const found = useQuery(selectedQuery(query)).data;
  const told = [...(found?.refusal ? [found.refusal.message] : []), ...(found?.warnings ?? [])];
  return (
    <>
      {told.map((one) => (
        <Alert key={one} color="yellow" title={found?.mode === "find" ? "Too many to list" : "Warning"}>
          {one}
        </Alert>
      ))}
      <ConnectPanel {...query} />
    </>
  );
}
