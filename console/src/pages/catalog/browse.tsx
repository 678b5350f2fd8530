/** The first page: a search, and below it the categories, or what was found. */
import { Button, Card, SimpleGrid, Text, Title } from "@mantine/core";
import { useDebouncedValue } from "@mantine/hooks";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearchParams } from "react-router";
import type { Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { PageHead } from "@/parts/page-head";
import { Empty, Loaded } from "@/parts/states";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import styles from "./catalog.module.css";
import { isSearching, parseFilters } from "./filters";
import { categoryPath } from "./paths";
import { categoriesQuery } from "./queries";
import { Results } from "./results";
import { SearchFields } from "./search-fields";

/** Words are searched for after this pause in typing. */
const PAUSE_MS = 250;

export function Browse() {
  const mayRead = useMay("viewer");
  const [params] = useSearchParams();
  const typed = parseFilters(params);
  const [q] = useDebouncedValue(typed.q, PAUSE_MS);
  const filters = { ...typed, q };
  return (
    <>
      <PageHead
        title="Catalog"
        about="All tools that you can reach. Pick tools or whole packages, and use them as a skill or a URL."
      >
        {mayRead ? (
          <Button variant="default" component={Link} to="/catalog/quality">
            Data quality
          </Button>
        ) : null}
      </PageHead>
      <SearchFields />
      {isSearching(filters) ? <Results filters={filters} /> : <Categories />}
    </>
  );
}

function Categories() {
  const query = useQuery(categoriesQuery);
  return (
    <Loaded query={query} what="Loading the catalog">
      {(categories) =>
        categories.length === 0 ? (
          <Nothing />
        ) : (
          <SimpleGrid cols={{ base: 1, xs: 2, md: 3, xl: 4 }} mt="md" component="nav" aria-label="Categories">
            {categories.map((one) => (
              <Category key={one.id} category={one} />
            ))}
          </SimpleGrid>
        )
      }
    </Loaded>
  );
}

function Nothing() {
  const mayRegister = useMay("admin");
  return (
    <Empty title="The catalog is empty">
      {mayRegister ? (
        <>
          <Link to="/servers/-/new">Register a server</Link>, or install a package with{" "}
          <span className="mono">toolgate packages install</span>. Its tools appear once it has listed them.
        </>
      ) : (
        "You can reach no tools. Ask an admin to register a server."
      )}
    </Empty>
  );
}

function Category({ category }: { readonly category: Shapes["CategoryShown"] }) {
  return (
    <Card withBorder component={Link} to={categoryPath(category.id)} className={styles.card}>
      <Title order={2} size="h5">
        <Untrusted text={category.name} />
      </Title>
      <Text size="sm" c="dimmed">
        {category.packageCount === 1 ? "1 package" : `${count(category.packageCount)} packages`},{" "}
        {category.toolCount === 1 ? "1 tool" : `${count(category.toolCount)} tools`}
      </Text>
    </Card>
  );
}
