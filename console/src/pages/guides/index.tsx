/** The guides of the documentation, as they were when this console was built. */
import { Anchor, Blockquote, Card, Code, Table, Title } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Fragment, type ReactNode, useEffect } from "react";
import { Link, useLocation, useParams } from "react-router";
import { CodeBlock } from "@/parts/copy";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import type { GuideNode } from "./guide-node";
import styles from "./guides.module.css";

const GUIDES = import.meta.glob<readonly GuideNode[]>(
  [
    "../../../../docs/{index,troubleshooting}.md",
    "../../../../docs/{how-to,tutorials,explanation}/*.md",
    "../../../../docs/reference/{server-record,policy-records,chat-upstream-record,settings,errors,limits}.md",
  ],
  { query: "?guide", import: "default" },
);

const ROOT = "../../../../docs/";

function textOf(node: GuideNode): string {
  if (typeof node === "string") return node;
  const [, , children] = node;
  return children.map(textOf).join("");
}

export default function GuidesPage() {
  const name = useParams()["*"] || "index";
  const load = GUIDES[`${ROOT}${name}.md`];
  if (load === undefined)
    return (
      <Empty
        title="No such guide"
        firstStep={
          <Anchor component={Link} to="/guides">
            All guides
          </Anchor>
        }
      >
        It may have moved. The list of guides has them all.
      </Empty>
    );
  return <Guide key={name} name={name} load={load} />;
}

interface GuideProps {
  readonly name: string;
  readonly load: () => Promise<readonly GuideNode[]>;
}

function Guide({ name, load }: GuideProps) {
  const guide = useQuery({ queryKey: ["guide", name], queryFn: load, staleTime: Number.POSITIVE_INFINITY });
  const { hash } = useLocation();
  const isLoaded = guide.data !== undefined;
  useEffect(() => {
    if (isLoaded && hash) document.getElementById(decodeURIComponent(hash.slice(1)))?.scrollIntoView();
  }, [isLoaded, hash]);
  return (
    <Loaded query={guide} what="Loading the guide">
      {([heading, ...rest]) => (
        <>
          <PageHead
            title={heading === undefined ? name : textOf(heading)}
            above={[]}
            about={
              name === "index" ? null : (
                <Anchor component={Link} to="/guides">
                  All guides
                </Anchor>
              )
            }
          />
          <Card withBorder padding="lg" className={styles.guide}>
            {rest.map(shown)}
          </Card>
        </>
      )}
    </Loaded>
  );
}

function shownAll(nodes: readonly GuideNode[]): ReactNode[] {
  return nodes.map(shown);
}

/** Each kind of element that a guide may have. An element of any other kind shows only what is in it. */
const ELEMENTS: Readonly<Record<string, (value: string, children: readonly GuideNode[]) => ReactNode>> = {
  h2: (id, children) => (
    <Title order={2} size="h3" id={id}>
      {shownAll(children)}
    </Title>
  ),
  h3: (id, children) => (
    <Title order={3} size="h4" id={id}>
      {shownAll(children)}
    </Title>
  ),
  h4: (id, children) => (
    <Title order={4} size="h5" id={id}>
      {shownAll(children)}
    </Title>
  ),
  p: (_, children) => <p>{shownAll(children)}</p>,
  a: (to, children) => <GuideLink to={to}>{shownAll(children)}</GuideLink>,
  code: (_, children) => <Code>{shownAll(children)}</Code>,
  strong: (_, children) => <strong>{shownAll(children)}</strong>,
  em: (_, children) => <em>{shownAll(children)}</em>,
  ul: (_, children) => <ul>{shownAll(children)}</ul>,
  ol: (_, children) => <ol>{shownAll(children)}</ol>,
  li: (_, children) => <li>{shownAll(children)}</li>,
  br: () => <br />,
  pre: (_, children) => <CodeBlock text={children.map(textOf).join("")} label="example" />,
  blockquote: (_, children) => <Blockquote>{shownAll(children)}</Blockquote>,
  table: (_, rows) => <GuideTable rows={rows} />,
  tr: (_, children) => <tr>{shownAll(children)}</tr>,
  th: (_, children) => <th>{shownAll(children)}</th>,
  td: (_, children) => <td>{shownAll(children)}</td>,
};

function shown(node: GuideNode, place: number): ReactNode {
  if (typeof node === "string") return node;
  const [tag, value, children] = node;
  // Guides never change while they are shown: the place is as good a key as any.
  return <Fragment key={place}>{ELEMENTS[tag]?.(value, children) ?? shownAll(children)}</Fragment>;
}

function GuideLink({ to, children }: { readonly to: string; readonly children: ReactNode }) {
  if (to.startsWith("http"))
    return (
      <Anchor href={to} target="_blank" rel="noreferrer" underline="always">
        {children}
      </Anchor>
    );
  return (
    <Anchor component={Link} to={to} underline="always">
      {children}
    </Anchor>
  );
}

function GuideTable({ rows }: { readonly rows: readonly GuideNode[] }) {
  const [head, ...body] = rows;
  return (
    <Table.ScrollContainer minWidth={0}>
      <table className={styles.table}>
        <thead>{head === undefined ? null : shown(head, 0)}</thead>
        <tbody>{shownAll(body)}</tbody>
      </table>
    </Table.ScrollContainer>
  );
}
