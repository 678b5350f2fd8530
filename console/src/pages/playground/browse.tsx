/** Pick a tool: by words and server among all tools, or among those of a task. */
import { Badge, Button, Center, Text } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { type Column, DataTable } from "@/parts/data-table";
import { ClearFilters, useFilters } from "@/parts/filter-row";
import { hasWords } from "@/parts/filter-words";
import { Prose } from "@/parts/prose";
import { Empty, Failure, Loaded, Skeletons } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { searchQuery } from "../catalog/queries";
import { BrowseFields } from "./browse-fields";
import { playPath } from "./paths";
import { taskToolsQuery } from "./queries";

interface Row {
  readonly name: string;
  readonly description: string;
  readonly tokens: number;
  readonly effect: "read-only" | "destructive" | "";
}

/** Words are searched for after this pause in typing. */
const PAUSE_MS = 250;
/** What is shown of a description in a list. */
const ABOUT_CHARS = 300;

export function Browse() {
  const { of, text } = useFilters();
  const [settled] = useDebouncedValue(text, PAUSE_MS);
  const task = of("task");
  const server = of("server");
  return (
    <>
      <BrowseFields />
      {task === "" ? (
        <AnyTask q={settled} server={server} />
      ) : (
        <OfTask key={task} task={task} q={text} server={server} />
      )}
    </>
  );
}

const COLUMNS: readonly Column<Row>[] = [
  {
    key: "name",
    title: "Tool",
    show: (one) => (
      <Text span fw={550}>
        <Untrusted text={one.name} mono />
      </Text>
    ),
  },
  {
    key: "effect",
    title: "Effect",
    show: (one) =>
      one.effect ? (
        <Badge variant="light" color={one.effect === "read-only" ? "green" : "red"}>
          {one.effect}
        </Badge>
      ) : null,
    isMinor: true,
    width: 120,
  },
  {
    key: "about",
    title: "Description",
    show: (one) => (
      <Text size="sm" lineClamp={2} component="div">
        <Prose text={one.description.slice(0, ABOUT_CHARS)} />
      </Text>
    ),
    isMinor: true,
    width: "48%",
  },
  { key: "tokens", title: "Tokens", align: "right", show: (one) => count(one.tokens), width: 90 },
];

function Rows({ rows, task }: { readonly rows: readonly Row[]; readonly task: string }) {
  return (
    <DataTable
      label="Tools found"
      rows={rows}
      columns={COLUMNS}
      keyOf={(one) => one.name}
      hrefOf={(one) => playPath(one.name, task)}
      empty={
        <Empty title="No tools match" firstStep={<ClearFilters names={["server", "task"]} />}>
          Try other words, another server or another task.
        </Empty>
      }
    />
  );
}

function AnyTask({ q, server }: { readonly q: string; readonly server: string }) {
  const query = useInfiniteQuery(searchQuery({ q, server, category: "", tag: "", isReadOnly: false }));
  if (query.isError) return <Failure error={query.error} onRetry={() => void query.refetch()} />;
  if (query.data === undefined) return <Skeletons what="Loading the tools" />;
  const found = query.data.pages.flatMap((page) => page.tools).filter((one) => one.name !== "*");
  const total = query.data.pages[0]?.total ?? 0;
  if (total === 0 && q === "" && server === "") return <NoTools />;
  const rows = found.map((one): Row => {
    const effect = one.readOnly
      ? "read-only"
      : one.annotations?.destructiveHint === true
        ? "destructive"
        : "";
    return { name: one.fullName, description: one.description, tokens: one.tokens, effect };
  });
  return (
    <>
      <Rows rows={rows} task="" />
      {query.hasNextPage ? (
        <Center>
          <Button
            variant="default"
            loading={query.isFetchingNextPage}
            onClick={() => void query.fetchNextPage()}
          >
            Show more of {count(total)} tools
          </Button>
        </Center>
      ) : null}
    </>
  );
}

function NoTools() {
  return (
    <Empty
      title="No tools yet"
      firstStep={
        <Button component={Link} to="/servers">
          Open the servers
        </Button>
      }
    >
      Tools appear once a server has connected and listed them.
    </Empty>
  );
}

interface OfTaskProps {
  readonly task: string;
  readonly q: string;
  readonly server: string;
}

function OfTask({ task, q, server }: OfTaskProps) {
  const query = useQuery(taskToolsQuery(task));
  return (
    <Loaded query={query} what="Loading the tools of the task">
      {({ tools }) => {
        const rows = tools
          .filter((one) => server === "" || one.server_id === server)
          .map(({ name, description, tokens }): Row => ({ name, description, tokens, effect: "" }))
          .filter((one) => hasWords(q, one.name, one.description));
        return <Rows rows={rows} task={task} />;
      }}
    </Loaded>
  );
}
