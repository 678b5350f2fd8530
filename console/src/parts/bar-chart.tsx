/** Counts over time as bars, and as a table for who would rather read them. */
import { Box, Group, Text, VisuallyHidden } from "@mantine/core";
import styles from "./bar-chart.module.css";
import { count, moment } from "./time";

export interface Bar {
  readonly at_ms: number;
  /** From the bottom up, one number a series. */
  readonly counts: readonly number[];
}

export interface Series {
  readonly title: string;
  /** A colour of the theme's tones. */
  readonly colour: string;
}

interface BarChartProps {
  readonly label: string;
  readonly bars: readonly Bar[];
  readonly series: readonly Series[];
  readonly height?: number;
  /** How the time of a bar is told. */
  readonly when?: (ms: number) => string;
}

const GAP = 0.2;

const total = (bar: Bar) => bar.counts.reduce((sum, one) => sum + one, 0);

export function BarChart({ label, bars, series, height = 160, when = moment }: BarChartProps) {
  const most = Math.max(1, ...bars.map(total));
  const first = bars[0];
  const last = bars.at(-1);
  return (
    <Box component="figure" m={0}>
      <Group gap="md" mb={4} component="figcaption">
        {series.map((one) => (
          <Group key={one.title} gap={6} component="span">
            <span className={styles.swatch} style={{ background: one.colour }} />
            <Text span size="sm">
              {one.title}
            </Text>
          </Group>
        ))}
        <Text span size="sm" c="dimmed" ml="auto">
          peak {count(most)}
        </Text>
      </Group>
      <svg
        aria-hidden
        className={styles.chart}
        viewBox={`0 0 ${Math.max(1, bars.length)} ${height}`}
        preserveAspectRatio="none"
        height={height}
        width="100%"
      >
        {bars.map((bar, place) => (
          <g key={bar.at_ms}>
            <title>{`${when(bar.at_ms)}: ${series.map((one, i) => `${one.title} ${bar.counts[i]}`).join(", ")}`}</title>
            <rect x={place} y={0} width={1} height={height} fill="transparent" />
            {stack(bar, (height - 2) / most).map((part, i) => (
              <rect
                key={series[i]?.title}
                x={place + GAP / 2}
                y={height - part.top}
                width={1 - GAP}
                height={part.size}
                fill={series[i]?.colour}
              />
            ))}
          </g>
        ))}
      </svg>
      <Group justify="space-between" mt={4}>
        <Text size="xs" c="dimmed">
          {first ? when(first.at_ms) : ""}
        </Text>
        <Text size="xs" c="dimmed">
          {last ? when(last.at_ms) : ""}
        </Text>
      </Group>
      <VisuallyHidden>
        <table>
          <caption>{label}</caption>
          <thead>
            <tr>
              <th>From</th>
              {series.map((one) => (
                <th key={one.title}>{one.title}</th>
              ))}
            </tr>
          </thead>
          <tbody>
            {bars
              .filter((bar) => total(bar) > 0)
              .map((bar) => (
                <tr key={bar.at_ms}>
                  <td>{when(bar.at_ms)}</td>
                  {series.map((one, i) => (
                    <td key={one.title}>{bar.counts[i]}</td>
                  ))}
                </tr>
              ))}
          </tbody>
        </table>
      </VisuallyHidden>
    </Box>
  );
}

/** The parts of one bar, each with the height of its upper edge. What is there at all is seen: two units at least. */
function stack(bar: Bar, unit: number): { top: number; size: number }[] {
  let top = 0;
  return bar.counts.map((one) => {
    const size = one === 0 ? 0 : Math.max(2, one * unit);
    top += size;
    return { top, size };
  });
}
