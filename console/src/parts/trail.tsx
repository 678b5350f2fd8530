/** Where a page is: the pages above it, and itself. */
import { Anchor, Breadcrumbs } from "@mantine/core";
import { Link } from "react-router";
import { visibleText } from "./visible";

interface TrailProps {
  readonly above: readonly { readonly title: string; readonly path: string }[];
  readonly here: string;
}

export function Trail({ above, here }: TrailProps) {
  return (
    <Breadcrumbs mb="xs">
      {above.map(({ title, path }) => (
        <Anchor key={path} component={Link} to={path}>
          {visibleText(title)}
        </Anchor>
      ))}
      <span>{visibleText(here)}</span>
    </Breadcrumbs>
  );
}
