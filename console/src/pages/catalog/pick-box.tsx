/** Ticks that pick a tool, or a package as a whole. */
import { Checkbox } from "@mantine/core";
import { useQueryClient } from "@tanstack/react-query";
import { visibleText } from "@/parts/visible";
import { serverOf } from "./paths";
import {
  isPicked,
  MOST_PICKS,
  type Pick,
  pickedOf,
  wholeOf,
  withoutOneOf,
  withoutPackage,
  withoutPicked,
  withPackage,
  withPicked,
} from "./picks";
import { type Tool, toolsQuery } from "./queries";
import { usePicks } from "./use-picks";

const priced = (tool: Tool) => [tool.fullName, { tokens: tool.tokens, tools: 1 }] as const;

export function PickBox({ tool, label }: { readonly tool: Tool; readonly label?: string }) {
  const { picks, keep } = usePicks();
  const client = useQueryClient();
  const name = tool.fullName;
  const server = serverOf(name);
  const isTicked = isPicked(picks, name);
  const turn = async () => {
    if (!isTicked) keep(withPicked(picks, [priced(tool)]));
    else if (picks.has(name)) keep(withoutPicked(picks, [name]));
    // One tool of a whole package: the others stay picked, each by its name.
    else
      keep(withoutOneOf(picks, server, name, (await client.ensureQueryData(toolsQuery(server))).map(priced)));
  };
  return (
    <Checkbox
      aria-label={label ? undefined : `Pick ${visibleText(name)}`}
      label={label}
      checked={isTicked}
      disabled={!isTicked && picks.size >= MOST_PICKS}
      onChange={() => void turn()}
    />
  );
}

interface PackageBoxProps {
  readonly id: string;
  /** What all of its tools cost, and how many they are. */
  readonly pick: Pick;
  readonly label?: string;
}

/** Ticked: the package is picked whole. Half ticked: some of its tools are. */
export function PackageBox({ id, pick, label }: PackageBoxProps) {
  const { picks, keep } = usePicks();
  const state = pickedOf(picks, id);
  return (
    <Checkbox
      aria-label={label ? undefined : `Pick package ${visibleText(id)}`}
      label={label}
      checked={state === "whole"}
      indeterminate={state === "some"}
      disabled={state === "none" && picks.size >= MOST_PICKS && !picks.has(wholeOf(id))}
      onChange={() => keep(state === "whole" ? withoutPackage(picks, id) : withPackage(picks, id, pick))}
    />
  );
}
