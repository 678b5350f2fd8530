/** "Why is X missing?": the decision about one tool, prompt or resource by layer, and what to do. */
import { Anchor, Button, Card, Group, List, Stack, Text, TextInput, ThemeIcon } from "@mantine/core";
import { IconCheck, IconMinus, IconSearch, IconX } from "@tabler/icons-react";
import { useDeferredValue, useEffect, useLayoutEffect, useMemo, useRef, useState } from "react";
import { Link } from "react-router";
import { useMay } from "@/api/me";
import { Prose } from "@/parts/prose";
import { REASON_WORDS, ruleInWords } from "@/parts/reasons";
import { count } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { type Decision, type Item, LAYERS, type Layer } from "./decisions";
import type { Selection } from "./selection";
import { useUnlisted } from "./use-lens";
import { type Found, findWhy, resourceIn, serverIn } from "./why";
import { LAYER_WORDS, placeToChange, sayOf } from "./words";

interface WhyProps {
  readonly text: string;
  readonly onAsk: (text: string) => void;
  readonly items: readonly Item[];
  readonly servers: readonly Decision[];
  readonly pending: readonly string[];
  readonly selection: Selection;
}

const PAUSE_MS = 250;

/** The box: the address follows what is typed, and what is typed follows the address. */
export function Why(props: WhyProps) {
  const { text, onAsk } = props;
  const [typed, setTyped] = useState(text);
  useEffect(() => setTyped(text), [text]);
  useEffect(() => {
    if (typed === text) return;
    const timer = setTimeout(() => onAsk(typed), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [typed, text, onAsk]);
  const asked = useDeferredValue(text.trim());
  const box = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => showAnswer(box.current), []);
  return (
    <Stack gap="xs" id="why" ref={box}>
      <TextInput
        label="Why is it missing?"
        description="The name of a tool, prompt or resource, in any form."
        placeholder="git.git_commit"
        leftSection={<IconSearch size={16} aria-hidden />}
        type="search"
        value={typed}
        onChange={(event) => setTyped(event.currentTarget.value)}
      />
      {asked === "" ? null : <Answer {...props} text={asked} />}
    </Stack>
  );
}

/** Scrolls to the answer of a link that asks, if it is not in view. */
function showAnswer(box: HTMLElement | null): void {
  const isAsked = box !== null && box.childElementCount > 1;
  if (isAsked && box.getBoundingClientRect().bottom > window.innerHeight)
    box.scrollIntoView({ block: "start" });
}

function Answer({ text, items, servers, pending, selection, onAsk }: WhyProps) {
  const found = useMemo(() => findWhy(text, items, servers), [text, items, servers]);
  const resource = found.is === "none" ? resourceIn(text) : null;
  const unlisted = useUnlisted(selection, resource);
  const item = found.is === "one" ? found.item : resource && unlisted.data;
  const isWhole = servers.some((one) => one.server_id === item?.server);
  return (
    <Card withBorder padding="md" role="region" aria-label="Answer" aria-live="polite">
      {item ? (
        <Verdict item={item} isWhole={isWhole} selection={selection} />
      ) : found.is === "several" ? (
        <Several found={found} onAsk={onAsk} />
      ) : found.is === "none" ? (
        <Nothing text={text} found={found} isPending={pending.includes(serverIn(text))} onAsk={onAsk} />
      ) : null}
    </Card>
  );
}

function Verdict({ item, isWhole, selection }: { item: Item; isWhole: boolean; selection: Selection }) {
  const { decision, kind, label } = item;
  const knowsAll = useMay("viewer");
  const place = decision.allowed || !knowsAll ? null : placeToChange(decision, selection.task);
  return (
    <Stack gap="sm">
      <Text fw={700} component="div">
        The {kind} <Untrusted text={label} mono /> {decision.allowed ? "is in scope." : "is not in scope"}
        {decision.reason === null ? null : `: ${REASON_WORDS[decision.reason].title}.`}
      </Text>
      <Stack gap={6} component="ol" m={0} p={0}>
        {LAYERS.map((layer) => (
          <LayerSays key={layer} layer={layer} decision={decision} isWhole={isWhole} />
        ))}
      </Stack>
      {decision.reason === null ? null : <Text>{REASON_WORDS[decision.reason].todo}</Text>}
      {decision.shadow === null ? null : (
        <Text component="div" c="var(--tone-warn)">
          The task would deny it if it were enforced: <Prose text={decision.shadow.rule} />
        </Text>
      )}
      {decision.approval === null ? null : (
        <Text component="div">
          Each call needs approval: <Prose text={decision.approval} />
        </Text>
      )}
      {place || typeof decision.tokens === "number" ? (
        <Group gap="md">
          {place ? (
            <Button component={Link} to={place.path} size="xs" variant="default">
              {place.title}
            </Button>
          ) : null}
          {typeof decision.tokens === "number" ? (
            <Text size="sm" c="dimmed">
              About {count(decision.tokens)} tokens in a tool list.
            </Text>
          ) : null}
        </Group>
      ) : null}
    </Stack>
  );
}

const SIGNS = {
  yes: { Icon: IconCheck, color: "green" },
  no: { Icon: IconX, color: "red" },
  idle: { Icon: IconMinus, color: "gray" },
} as const;

function LayerSays({ layer, decision, isWhole }: { layer: Layer; decision: Decision; isWhole: boolean }) {
  const { says, words } = sayOf(layer, decision, isWhole);
  const { Icon, color } = SIGNS[says];
  return (
    <Group component="li" gap="xs" wrap="nowrap" align="flex-start">
      <ThemeIcon size="sm" variant="light" color={color} radius="xl" aria-hidden>
        <Icon size={14} />
      </ThemeIcon>
      <Text component="div" size="sm">
        <b>{LAYER_WORDS[layer].title}</b> {words}{" "}
        {layer === decision.layer ? <Rule decision={decision} /> : null}
      </Text>
    </Group>
  );
}

/** The rule in words, and as its author wrote it. */
export function Rule({ decision }: { readonly decision: Decision }) {
  const words = ruleInWords(decision.rule);
  return (
    <>
      {words ? `${words} · ` : null}
      <Prose text={decision.rule} />
    </>
  );
}

function Several({ found, onAsk }: { found: Found & { is: "several" }; onAsk: (text: string) => void }) {
  return (
    <Stack gap="xs">
      <Text fw={700}>{count(found.total)} matches. Choose one.</Text>
      <Names names={found.items.map((one) => one.label)} onAsk={onAsk} />
      {found.total > found.items.length ? (
        <Text size="sm" c="dimmed">
          and {count(found.total - found.items.length)} more. Type more of the name.
        </Text>
      ) : null}
    </Stack>
  );
}

interface NothingProps {
  readonly text: string;
  readonly found: Found & { is: "none" };
  readonly isPending: boolean;
  readonly onAsk: (text: string) => void;
}

function Nothing({ text, found, isPending, onAsk }: NothingProps) {
  const knowsAll = useMay("viewer");
  return (
    <Stack gap="xs">
      <Text fw={700} component="div">
        {knowsAll ? "Nothing is named " : "Nothing in your scope is named "}
        <Untrusted text={text} mono />.
      </Text>
      {found.server?.reason ? (
        <Text component="div">
          The server <Untrusted text={found.server.server_id} mono /> is excluded:{" "}
          {REASON_WORDS[found.server.reason].title} (<Rule decision={found.server} />
          ).
        </Text>
      ) : null}
      {isPending ? <Text>The server is in scope, but has not listed its tools yet.</Text> : null}
      {found.near.length > 0 ? (
        <>
          <Text>Similar names:</Text>
          <Names names={found.near} onAsk={onAsk} />
        </>
      ) : null}
    </Stack>
  );
}

function Names({
  names,
  onAsk,
}: {
  readonly names: readonly string[];
  readonly onAsk: (text: string) => void;
}) {
  return (
    <List size="sm" spacing={2}>
      {names.map((name) => (
        <List.Item key={name}>
          <Anchor component="button" type="button" size="sm" ta="left" onClick={() => onAsk(name)}>
            <Untrusted text={name} mono />
          </Anchor>
        </List.Item>
      ))}
    </List>
  );
}
