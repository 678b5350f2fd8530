/** The waterfall of one call. */
import { Anchor, Card, Group, Text, Title } from "@mantine/core";
import { Link } from "react-router";
import { duration } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import type { Waterfall } from "./waterfall";
import styles from "./waterfall.module.css";

interface WaterfallChartProps {
  readonly waterfall: Waterfall;
  /** The event whose page this is. */
  readonly here: string;
}

export function WaterfallChart({ waterfall, here }: WaterfallChartProps) {
  return (
    <Card withBorder component="section" aria-label="Timeline">
      <Group justify="space-between" mb="xs">
        <Title order={2} size="h4">
          Timeline
        </Title>
        <Text size="sm" c="dimmed">
          {duration(waterfall.tookMs)} in all
        </Text>
      </Group>
      <ol className={styles.bars}>
        {waterfall.bars.map((one) => (
          <li key={one.eventId} className={styles.row}>
            <div className={styles.name}>
              {one.eventId === here ? (
                <b>
                  <Untrusted text={one.title} />
                </b>
              ) : (
                <Anchor component={Link} to={`/activity/${encodeURIComponent(one.eventId)}`}>
                  <Untrusted text={one.title} />
                </Anchor>
              )}{" "}
              <Text span size="sm" c="dimmed">
                <Untrusted text={one.result} />
              </Text>
            </div>
            <div className={styles.track} aria-hidden>
              <div
                className={styles.bar}
                data-here={one.eventId === here}
                style={{ left: `${100 * one.from}%`, width: `max(3px, ${100 * one.share}%)` }}
              />
            </div>
            <Text size="sm" ta="right">
              {one.tookMs > 0 ? duration(one.tookMs) : `at ${duration(one.startMs)}`}
            </Text>
          </li>
        ))}
      </ol>
    </Card>
  );
}
