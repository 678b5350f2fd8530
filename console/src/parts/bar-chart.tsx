/** Counts over time as stacked bars with axes, and as a table of the same numbers. */
import { Box, Group, Text, VisuallyHidden } from "@mantine/core";
import { useState } from "react";
import { Link } from "react-router";
import styles from "./bar-chart.module.css";
import { marks, short, type TimeMark, timeMarks } from "./chart-scale";
import { count, moment } from "./time";

export interface Bar {
  readonly at_ms: number;
  /** From the bottom up, one number a series. */
  readonly counts: readonly number[];
}

export interface Series {
  readonly title: string;
  /** One of the `--series-` colours of the theme. */
  readonly colour: string;
}

interface BarChartProps {
  readonly label: string;
  readonly bars: readonly Bar[];
  readonly series: readonly Series[];
  /** The time that one bar covers. */
  readonly stepMs: number;
  readonly height?: number;
  /** Whether bars are days of UTC. */
  readonly isUtc?: boolean;
  /** How the time of a bar is written. */
  readonly when?: (ms: number) => string;
  /** Where a bar leads to. */
  readonly hrefOf?: (bar: Bar) => string;
}

const GAP = 0.18;

const total = (bar: Bar) => bar.counts.reduce((sum, one) => sum + one, 0);

export function BarChart(props: BarChartProps) {
  const { label, bars, series, stepMs, height = 180, isUtc = false, when = moment } = props;
  const [pointed, setPointed] = useState<Bar | null>(null);
  const axis = marks(Math.max(0, ...bars.map(total)));
  const most = axis.at(-1) ?? 1;
  const since = bars[0]?.at_ms ?? 0;
  const until = since + bars.length * stepMs;
  return (
    <Box component="figure" m={0}>
      <Legend series={series} bar={pointed} when={when} />
      <div className={styles.frame} style={{ height }}>
        {axis.map((one) => (
          <div key={one} className={styles.line} style={{ bottom: `${(100 * one) / most}%` }}>
            <span aria-hidden>{short(one)}</span>
          </div>
        ))}
        <div className={styles.plot}>
          <Bars {...props} most={most} height={height} onPoint={setPointed} />
        </div>
      </div>
      <TimeAxis marks={timeMarks(since, until, 8, isUtc)} />
      <ReadableTable label={label} bars={bars} series={series} when={when} />
    </Box>
  );
}

interface LegendProps {
  readonly series: readonly Series[];
  /** The bar that is pointed at. */
  readonly bar: Bar | null;
  readonly when: (ms: number) => string;
}

function Legend({ series, bar, when }: LegendProps) {
  return (
    <Group gap="md" mb={8} component="figcaption">
      {series.map((one, place) => (
        <Group key={one.title} gap={6} component="span">
          <span className={styles.swatch} style={{ background: one.colour }} />
          <Text span size="sm">
            {one.title}
            {bar === null ? "" : ` ${count(bar.counts[place] ?? 0)}`}
          </Text>
        </Group>
      ))}
      <Text span size="sm" c="dimmed" ml="auto">
        {bar === null ? "" : when(bar.at_ms)}
      </Text>
    </Group>
  );
}

interface BarsProps extends BarChartProps {
  readonly most: number;
  readonly height: number;
  readonly onPoint: (bar: Bar | null) => void;
}

function Bars({ bars, series, most, height, hrefOf, onPoint }: BarsProps) {
  return (
    <>
      <svg
        aria-hidden
        className={styles.chart}
        viewBox={`0 0 ${Math.max(1, bars.length)} ${height}`}
        preserveAspectRatio="none"
      >
        {bars.map((bar, place) =>
          stack(bar, height / most).map((part, i) => (
            <rect
              key={`${bar.at_ms} ${series[i]?.title}`}
              x={place + GAP / 2}
              y={height - part.top}
              width={1 - GAP}
              height={part.size}
              fill={series[i]?.colour}
            />
          )),
        )}
      </svg>
      <div className={styles.columns} aria-hidden onMouseLeave={() => onPoint(null)}>
        {bars.map((bar) =>
          hrefOf && total(bar) > 0 ? (
            <Link
              key={bar.at_ms}
              to={hrefOf(bar)}
              tabIndex={-1}
              className={styles.column}
              onMouseEnter={() => onPoint(bar)}
            />
          ) : (
            // biome-ignore lint/a11y/noStaticElementInteractions: the table below has the same numbers
            <div key={bar.at_ms} className={styles.column} onMouseEnter={() => onPoint(bar)} />
          ),
        )}
      </div>
    </>
  );
}

function TimeAxis({ marks: found }: { readonly marks: readonly TimeMark[] }) {
  return (
    <div className={styles.times} aria-hidden>
      {found.map((one) => (
        <span key={one.ms} style={{ left: `${100 * one.at}%` }}>
          {one.label}
        </span>
      ))}
    </div>
  );
}

type ReadableProps = Required<Pick<BarChartProps, "label" | "bars" | "series" | "when">>;

function ReadableTable({ label, bars, series, when }: ReadableProps) {
  return (
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
