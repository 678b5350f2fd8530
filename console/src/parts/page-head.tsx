/** The head of every page: where one is, what it is for, its guide, and what one can do. */
import { Anchor, Breadcrumbs, Group, Stack, Text, Title } from "@mantine/core";
import { useDocumentTitle } from "@mantine/hooks";
import { IconBook } from "@tabler/icons-react";
import type { ReactNode } from "react";
import { Link, useLocation } from "react-router";
import { placeOf } from "@/nav";
import { visibleText } from "./visible";

export interface Crumb {
  readonly title: string;
  readonly path: string;
}

interface PageHeadProps {
  readonly title: string;
  readonly about?: ReactNode;
  /** The pages between that of the menu and this one. */
  readonly above?: readonly Crumb[];
  /** A guide other than that of the page in the menu. */
  readonly guide?: string;
  /** Buttons, to the right. */
  readonly children?: ReactNode;
}

export function PageHead({ title, about, above = [], guide, children }: PageHeadProps) {
  const shown = visibleText(title);
  const { pathname } = useLocation();
  const place = placeOf(pathname);
  const read = guide ?? place?.guide;
  useDocumentTitle(`${shown} · Toolgate`);
  const isBelow = place !== undefined && (pathname !== place.path || above.length > 0);
  return (
    <Stack gap={6} mb="md">
      {isBelow ? (
        <Breadcrumbs component="nav" aria-label="Breadcrumbs" fz="sm">
          {[{ title: place.title, path: place.path }, ...above].map((one) => (
            <Anchor key={one.path} component={Link} to={one.path}>
              {visibleText(one.title)}
            </Anchor>
          ))}
          <span aria-current="page">{shown}</span>
        </Breadcrumbs>
      ) : null}
      <Group justify="space-between" align="flex-start" wrap="wrap">
        <Stack gap={2} maw={780}>
          <Title order={1} size="h2">
            {shown}
          </Title>
          {about || read ? (
            <Text c="dimmed" component="div">
              {about}{" "}
              {read ? (
                <Anchor
                  component={Link}
                  to={`/guides/${read}`}
                  underline="always"
                  style={{ display: "inline-flex", alignItems: "center", gap: 4, verticalAlign: "bottom" }}
                >
                  <IconBook size={14} aria-hidden />
                  Guide
                </Anchor>
              ) : null}
            </Text>
          ) : null}
        </Stack>
        <Group gap="xs">{children}</Group>
      </Group>
    </Stack>
  );
}
