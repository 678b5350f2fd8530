/** The picked packages and tools, with tokens, and whether each is in scope. */
import { ActionIcon, Anchor, Badge, Group } from "@mantine/core";
import { IconX } from "@tabler/icons-react";
import { Link } from "react-router";
import { type Column, DataTable } from "@/parts/data-table";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { packagePath, serverOf, toolPath, whyPath } from "./paths";
import { toolCount } from "./pick-bar";
import { isWhole, type Pick, type Picks, withoutPicked } from "./picks";
import type { PickedScope } from "./queries";

interface PickedListProps {
  readonly picks: Picks;
  readonly keep: (picks: Picks) => void;
  /** Undefined: not known yet. */
  readonly scope: PickedScope | undefined;
}

type Row = readonly [name: string, pick: Pick];

export function PickedList({ picks, keep, scope }: PickedListProps) {
  const seen = new Set([...(scope?.prices.keys() ?? [])].flatMap((one) => [one, serverOf(one)]));
  const isSeen = (name: string) => seen.has(isWhole(name) ? serverOf(name) : name);
  const columns: Column<Row>[] = [
    {
      key: "name",
      title: "Package or tool",
      show: ([name, pick]) => (
        <Group gap="xs">
          {isWhole(name) ? <Package id={serverOf(name)} tools={pick.tools} /> : <Tool name={name} />}
          {scope && !isSeen(name) ? <Unseen name={isWhole(name) ? serverOf(name) : name} /> : null}
        </Group>
      ),
      sortBy: ([name]) => name,
    },
    {
      key: "tokens",
      title: "Tokens",
      show: ([, pick]) => count(pick.tokens),
      sortBy: ([, pick]) => pick.tokens,
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
          aria-label={`Remove ${visibleText(isWhole(name) ? serverOf(name) : name)}`}
          onClick={() => keep(withoutPicked(picks, [name]))}
        >
          <IconX size={16} />
        </ActionIcon>
      ),
      width: 56,
    },
  ];
  return <DataTable label="Picked" rows={[...picks]} columns={columns} keyOf={([name]) => name} />;
}

function Tool({ name }: { readonly name: string }) {
  return (
    <Anchor component={Link} to={toolPath(name)}>
      <Untrusted text={name} mono />
    </Anchor>
  );
}

function Package({ id, tools }: { readonly id: string; readonly tools: number }) {
  return (
    <>
      <Anchor component={Link} to={packagePath(id)}>
        <Untrusted text={id} mono />
      </Anchor>
      <Badge variant="light" color="gray" tt="none">
        whole package, {toolCount(tools)}
      </Badge>
    </>
  );
}

function Unseen({ name }: { readonly name: string }) {
  return (
    <>
      <Badge color="orange" variant="light" tt="none">
        not in scope
      </Badge>
      <Anchor component={Link} to={whyPath(name)} size="sm">
        Why?
      </Anchor>
    </>
  );
}
