/** The packages of a category, and the servers that run from none. */
import { Anchor, Badge, Group, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "react-router";
import { type Column, DataTable } from "@/parts/data-table";
import { PageHead } from "@/parts/page-head";
import { Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { packagePath } from "./paths";
import { PackageBox } from "./pick-box";
import { type CatalogPackage, categoriesQuery, categoryQuery } from "./queries";

/** What is shown of a description in a list. */
const ABOUT_CHARS = 300;

const COLUMNS: readonly Column<CatalogPackage>[] = [
  {
    key: "pick",
    title: "",
    show: (one) => <PackageBox id={one.id} pick={{ tokens: one.tokens, tools: one.toolCount }} />,
    width: 44,
  },
  {
    key: "name",
    title: "Package",
    show: (one) => (
      <Anchor component={Link} to={packagePath(one.id)} fw={600}>
        <Untrusted text={one.name} />
      </Anchor>
    ),
    sortBy: (one) => one.name,
  },
  {
    key: "id",
    title: "ID",
    show: (one) => <Untrusted text={one.id} mono />,
    sortBy: (one) => one.id,
    isMinor: true,
  },
  {
    key: "about",
    title: "About",
    show: (one) => (
      <Text size="sm" lineClamp={1} component="div">
        <Untrusted text={one.description.slice(0, ABOUT_CHARS)} />
      </Text>
    ),
    isMinor: true,
  },
  {
    key: "tags",
    title: "Tags",
    show: (one) => <Tags tags={one.tags} />,
    isMinor: true,
  },
  {
    key: "version",
    title: "Version",
    show: (one) => (one.version === null ? "–" : <Untrusted text={one.version} mono />),
    sortBy: (one) => one.version ?? "",
    isMinor: true,
  },
  {
    key: "tools",
    title: "Tools",
    show: (one) => (one.toolCount === 0 ? "unknown" : count(one.toolCount)),
    sortBy: (one) => one.toolCount,
    align: "right",
    width: 100,
  },
  {
    key: "tokens",
    title: "Tokens",
    show: (one) => count(one.tokens),
    sortBy: (one) => one.tokens,
    align: "right",
    width: 100,
    isMinor: true,
  },
];

export function CategoryPage() {
  const { category = "" } = useParams();
  const query = useQuery(categoryQuery(category));
  const name = useQuery(categoriesQuery).data?.find((one) => one.id === category)?.name ?? category;
  return (
    <>
      <PageHead title={name} />
      <Loaded query={query} what="Loading the category">
        {(packages) => (
          <DataTable
            label="Packages"
            rows={packages}
            columns={COLUMNS}
            keyOf={(one) => one.id}
            sort={{ key: "name" }}
          />
        )}
      </Loaded>
    </>
  );
}

export function Tags({ tags }: { readonly tags: readonly string[] }) {
  return (
    <Group gap={4}>
      {tags.slice(0, 6).map((one) => (
        <Badge
          key={one}
          component={Link}
          to={`/catalog?${new URLSearchParams({ tag: one })}`}
          variant="light"
          color="gray"
          tt="none"
          style={{ cursor: "pointer" }}
        >
          {visibleText(one)}
        </Badge>
      ))}
    </Group>
  );
}
