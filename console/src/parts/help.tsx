/** What a field of a record means, in the words of the reference. */
import { ActionIcon, Anchor, Group, Popover, Text } from "@mantine/core";
import { IconHelpCircle } from "@tabler/icons-react";
import { useQuery } from "@tanstack/react-query";
import { Link } from "react-router";
import { Prose } from "./prose";

type Kind = "server" | "task" | "profile" | "key" | "chat_upstream";

const REFERENCE: Readonly<Record<Kind, string>> = {
  server: "reference/server-record",
  task: "reference/policy-records",
  profile: "reference/policy-records",
  key: "reference/policy-records",
  chat_upstream: "reference/chat-upstream-record",
};

/** The kind of record and the path of the field, like `server.stdio.command`. */
export type HelpOf = `${Kind}.${string}`;

interface HelpProps {
  readonly of: HelpOf;
  /** The label of the field. */
  readonly label: string;
}

/** A label, with the help of its field behind a button. For `label` of an input whose `aria-label` is set. */
export function HelpLabel({ of, label }: HelpProps) {
  return (
    <Group component="span" gap={4} display="inline-flex" align="center" wrap="nowrap">
      {label}
      <Help of={of} label={label} />
    </Group>
  );
}

/** A button that shows the help of a field. */
export function Help({ of, label }: HelpProps) {
  return (
    <Popover width={320} withArrow withinPortal trapFocus returnFocus>
      <Popover.Target>
        <ActionIcon
          variant="transparent"
          color="gray"
          size="sm"
          aria-label={`Help: ${label}`}
          // In a label, a click would otherwise go on to the field.
          onClick={(event) => event.preventDefault()}
        >
          <IconHelpCircle size={15} />
        </ActionIcon>
      </Popover.Target>
      <Popover.Dropdown>
        <HelpText of={of} />
      </Popover.Dropdown>
    </Popover>
  );
}

function HelpText({ of }: { readonly of: HelpOf }) {
  const texts = useQuery({
    queryKey: ["help"],
    queryFn: async () => (await import("@/api/help.json")).default as Readonly<Record<string, string>>,
    staleTime: Number.POSITIVE_INFINITY,
  });
  const [kind, ...path] = of.split(".") as [Kind, ...string[]];
  return (
    <>
      <Text size="sm" component="div">
        <Prose text={texts.data?.[of] ?? "…"} />
      </Text>
      <Text size="xs" c="dimmed" mt={6}>
        <span className="mono">{path.join(".")}</span> in the{" "}
        <Anchor component={Link} to={`/guides/${REFERENCE[kind]}`} target="_blank">
          reference
        </Anchor>
      </Text>
    </>
  );
}
