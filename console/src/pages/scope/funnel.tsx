/** The funnel: what each layer excludes, as a picture and a list. */
import { Box, Text, UnstyledButton } from "@mantine/core";
import { REASON_WORDS } from "@/parts/reasons";
import { count } from "@/parts/time";
import type { Amount, Funnel as FunnelData, Kind, Layer, Step } from "./decisions";
import classes from "./funnel.module.css";
import { LAYER_WORDS } from "./words";

interface FunnelProps {
  readonly funnel: FunnelData;
  readonly kind: Kind;
  /** The request is denied, although the layers allow something. */
  readonly isRefused: boolean;
  readonly chosen: Layer | null;
  readonly onChoose: (layer: Layer | null) => void;
}

export function Funnel({ funnel, kind, isRefused, chosen, onChoose }: FunnelProps) {
  const all = funnel.steps[0]?.enters.count ?? 0;
  const left = isRefused ? { count: 0, tokens: 0 } : funnel.left;
  return (
    <Box component="ol" className={classes.funnel} aria-label="Scope by layer">
      {funnel.steps.map((step) => (
        <LayerBox
          key={step.layer}
          step={step}
          kind={kind}
          all={all}
          isChosen={chosen === step.layer}
          onChoose={() => onChoose(chosen === step.layer ? null : step.layer)}
        />
      ))}
      <Box component="li" className={classes.step} data-left>
        <Shape from={left.count} to={left.count} all={all} isEnd />
        <Box p="xs">
          <Text fw={700}>In scope</Text>
          <Text size="xl" fw={700} lh={1.2}>
            {count(left.count)}
          </Text>
          <Text size="sm">{amountInWords(left, kind)}</Text>
          {isRefused ? <Text size="sm">The whole request is denied.</Text> : null}
        </Box>
      </Box>
    </Box>
  );
}

interface LayerBoxProps {
  readonly step: Step;
  readonly kind: Kind;
  readonly all: number;
  readonly isChosen: boolean;
  readonly onChoose: () => void;
}

function LayerBox({ step, kind, all, isChosen, onChoose }: LayerBoxProps) {
  const { layer, enters, takes, reasons } = step;
  const { title, about } = LAYER_WORDS[layer];
  return (
    <Box component="li" className={classes.step}>
      <Shape from={enters.count} to={enters.count - takes.count} all={all} />
      <UnstyledButton
        className={classes.body}
        aria-pressed={isChosen}
        disabled={takes.count === 0}
        onClick={onChoose}
        title={takes.count > 0 ? `Show what the ${layer} layer excludes` : undefined}
      >
        <Text fw={700}>{title}</Text>
        <Text size="xs" c="dimmed">
          {about}
        </Text>
        <Text size="sm" mt={4}>
          {amountInWords(enters, kind, true)} enter
        </Text>
        <Text
          size="sm"
          fw={takes.count > 0 ? 600 : undefined}
          className={takes.count > 0 ? classes.takes : undefined}
        >
          {takes.count > 0 ? `excludes ${amountInWords(takes, kind, true)}` : "excludes nothing"}
        </Text>
        {reasons.slice(0, 3).map((one) => (
          <Text key={one.reason} size="xs" c="dimmed">
            {count(one.count)}: {REASON_WORDS[one.reason].title}
          </Text>
        ))}
        {reasons.length > 3 ? (
          <Text size="xs" c="dimmed">
            and {reasons.length - 3} more reasons
          </Text>
        ) : null}
      </UnstyledButton>
    </Box>
  );
}

/** A slice of the funnel: its sides are as high as what enters and what leaves. */
function Shape({ from, to, all, isEnd = false }: { from: number; to: number; all: number; isEnd?: boolean }) {
  const half = (value: number) => (all === 0 || value === 0 ? 0.5 : Math.max(1.5, (value / all) * 24));
  const [a, b] = [half(from), half(to)];
  return (
    <svg viewBox="0 0 100 50" preserveAspectRatio="none" className={classes.shape} aria-hidden="true">
      <polygon
        points={`0,${25 - a} 100,${25 - b} 100,${25 + b} 0,${25 + a}`}
        className={isEnd ? classes.end : classes.slice}
      />
    </svg>
  );
}

function amountInWords(amount: Amount, kind: Kind, isCounted = false): string {
  const things = amount.count === 1 ? kind : `${kind}s`;
  const tokens = kind === "tool" && amount.tokens > 0 ? `, ${count(amount.tokens)} tokens` : "";
  return `${isCounted ? `${count(amount.count)} ` : ""}${things}${tokens}`;
}
