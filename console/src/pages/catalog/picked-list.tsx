/** The picked tools, each with its price, and whether it is seen at all. */
import { ActionIcon, Anchor, Badge, Group } from "@mantine/core";
import { IconX } from "@tabler/icons-react";
import { Link } from "react-router";
import { type Column, DataTable } from "@/parts/data-table";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { toolPath, whyPath } from "./paths";
import { type Picks, withoutPicked } from "./picks";
import type { PickedScope } from "./queries";

interface PickedListProps {
  readonly picks: Picks;
  readonly keep: (picks: Picks) => void;
  /** Undefined: not known yet. */
  readonly scope: PickedScope | undefined;
}

type Row = readonly [name: string, tokens: number];

export function PickedList({ picks, keep, scope }: PickedListProps) {
  const columns: Column<Row>[] = [
    {
      key: "name",
      title: "Tool",
      show: ([name]) => (
        <Group gap="xs">
          <Anchor component={Link} to={toolPath(name)}>
            <Untrusted text={name} mono />
          </Anchor>
          {scope && !scope.prices.has(name) ? <Unseen name={name} /> : null}
        </Group>
      ),
      sortBy: ([name]) => name,
    },
    {
      key: "tokens",
      title: "Tokens",
      show: ([, tokens]) => count(tokens),
      sortBy: ([, tokens]) => tokens,
      align: "right",
      width: 100,
    },
    {
      key: "remove",
      title: "",
      show: ([name]) => (
        <ActionIcon
          variant="subtle"
          color="gray"
          aria-label={`Put back ${visibleText(name)}`}
          onClick={() => keep(withoutPicked(picks, [name]))}
        >
          <IconX size={16} />
        </ActionIcon>
      ),
      width: 56,
    },
  ];
  return (
    <DataTable label="Picked" rows={[...picks]} columns={columns} keyOf={([name]) => name} height={320} />
  );
}

function Unseen({ name }: { readonly name: string }) {
  return (
    <>
      <Badge color="orange" variant="light" tt="none">
        not seen
      </Badge>
      <Anchor component={Link} to={whyPath(name)} size="sm">
        Why?
      </Anchor>
    </>
  );
}
