/** How many tools of the catalog have full definitions, and the packages that depend on the summary fallback. */
import { Alert, Anchor, SimpleGrid, Stack, Switch, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";
import type { Shapes } from "@/api/client";
import { type Column, DataTable } from "@/parts/data-table";
import { Fact } from "@/parts/facts";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { packagePath } from "./paths";
import { qualityQuery } from "./queries";

type Package = Shapes["PackageQualityShown"];
type Quality = Shapes["CatalogQualityResponse"];
type Source = "manifest" | "discovered" | "summary" | "legacy";

const SOURCES: readonly (readonly [source: Source, title: string, about: string])[] = [
  ["manifest", "Manifest", "full definitions of packages"],
  ["discovered", "Server", "full definitions that servers list"],
  ["summary", "Summary", "name and description only"],
  ["legacy", "Unknown", "packages with unknown tools"],
];

const counted = (key: "with_schema" | "with_description" | Source, title: string): Column<Package> => ({
  key,
  title,
  show: (one) => count(one[key]),
  sortBy: (one) => one[key],
  align: "right",
  width: 104,
  isMinor: key !== "summary" && key !== "legacy",
});

const COLUMNS: readonly Column<Package>[] = [
  {
    key: "id",
    title: "Package",
    show: (one) => (
      <Anchor
        component={Link}
        to={one.hidden > 0 ? `/servers/${encodeURIComponent(one.id)}` : packagePath(one.id)}
      >
        <Untrusted text={one.id} mono />
        {one.hidden > 0 ? " (hidden)" : ""}
      </Anchor>
    ),
    sortBy: (one) => one.id,
  },
  ...SOURCES.map(([source, title]) => counted(source, title)),
  counted("with_schema", "Schema"),
  counted("with_description", "Described"),
];

export function QualityPage() {
  const [params, setParams] = useSearchParams();
  const isAll = params.get("all") === "true";
  const query = useQuery(qualityQuery(isAll));
  return (
    <>
      <PageHead
        title="Data quality"
        about="How many tools have full definitions, and which packages depend on summaries."
      />
      <Loaded query={query} what="Loading the data quality">
        {(found) => (
          <Stack>
            <Totals found={found} />
            <Fallback found={found} />
            <Switch
              label="All packages"
              checked={isAll}
              onChange={() => setParams(isAll ? {} : { all: "true" }, { replace: true })}
            />
            <DataTable
              label="Packages"
              rows={found.packages}
              columns={COLUMNS}
              keyOf={(one) => one.id}
              sort={{ key: "id" }}
              empty={
                <Empty title="No package depends on summaries">
                  Every tool in the catalog has a full definition.
                </Empty>
              }
            />
          </Stack>
        )}
      </Loaded>
    </>
  );
}

function Totals({ found }: { readonly found: Quality }) {
  const { total } = found;
  return (
    <>
      <Text>
        <b>{found.full_percent} %</b> of {count(total.rows)} rows have full definitions.{" "}
        {count(total.with_schema)} have a schema, {count(total.with_description)} a description.
      </Text>
      <SimpleGrid cols={{ base: 1, xs: 2 }} spacing={4} component="dl" m={0}>
        {SOURCES.map(([source, title, about]) => (
          <Fact key={source} name={title}>
            {count(total[source])} ({about})
          </Fact>
        ))}
      </SimpleGrid>
    </>
  );
}

/** What the setting does at this share, and what it would do. */
function Fallback({ found }: { readonly found: Quality }) {
  const { summary_fallback: endsAt, dependent } = found;
  const packages = dependent === 1 ? "1 package" : `${count(dependent)} packages`;
  if (found.fallback_ended)
    return (
      <Alert
        color={dependent > 0 ? "yellow" : "green"}
        title={`The summary fallback is off: full definitions reached ${endsAt} %`}
      >
        Rows of {packages} are hidden: callers see neither summaries nor packages without known tools.
      </Alert>
    );
  return (
    <Alert
      color="gray"
      title={
        endsAt === null
          ? "The summary fallback is always on"
          : `The summary fallback ends at ${endsAt} % full definitions`
      }
    >
      Without it, {packages} would lose rows. To complete a package, publish a manifest with{" "}
      <span className="mono">tools</span>, or let its server list them. The setting is{" "}
      <span className="mono">summary_fallback</span>.
    </Alert>
  );
}
