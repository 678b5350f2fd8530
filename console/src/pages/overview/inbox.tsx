/** The inbox: everything that needs a person, each line with its cause and its next action. */
import { Anchor, Button, Group, Stack, Text, ThemeIcon } from "@mantine/core";
import {
  IconCircleCheck,
  IconFilterOff,
  IconKey,
  IconLogin2,
  IconPinned,
  IconPlugConnectedX,
  IconUserQuestion,
} from "@tabler/icons-react";
import type { ComponentType } from "react";
import { Link } from "react-router";
import { MOST_PENDING, useAttention } from "@/parts/attention";
import { Prose } from "@/parts/prose";
import { ago, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { firstOfEach, type Item, itemsOf, type Kind, type Rest } from "./inbox-items";
import styles from "./overview.module.css";
import { Panel } from "./panel";

const ICONS: Readonly<Record<Kind, { icon: ComponentType<{ size?: number }>; color: string }>> = {
  server: { icon: IconPlugConnectedX, color: "red" },
  login: { icon: IconLogin2, color: "orange" },
  approval: { icon: IconUserQuestion, color: "yellow" },
  pin: { icon: IconPinned, color: "yellow" },
  key: { icon: IconKey, color: "orange" },
  finding: { icon: IconFilterOff, color: "gray" },
};

export function Inbox() {
  const items = itemsOf(useAttention());
  const { shown, rest } = firstOfEach(items);
  return (
    <Panel title="Needs attention" aside={items.length > 0 ? <Total many={items.length} /> : null}>
      {items.length === 0 ? (
        <Group gap="xs" c="var(--tone-good)">
          <IconCircleCheck size={18} aria-hidden />
          <Text>Nothing needs you now.</Text>
        </Group>
      ) : (
        <ul className={styles.inbox}>
          {shown.map((one) => (
            <Line key={one.key} item={one} />
          ))}
          {rest.map((one) => (
            <More key={one.kind} rest={one} />
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Total({ many }: { readonly many: number }) {
  return (
    <Text size="sm" c="dimmed">
      {many >= MOST_PENDING ? `${MOST_PENDING} or more` : many} open
    </Text>
  );
}

function Line({ item }: { readonly item: Item }) {
  const { icon: Icon, color } = ICONS[item.kind];
  return (
    <li className={styles.line}>
      <ThemeIcon variant="light" color={color} size="lg" aria-hidden>
        <Icon size={18} />
      </ThemeIcon>
      <Stack gap={0} style={{ flex: 1, minWidth: 0 }}>
        <Text component="div">
          <Anchor component={Link} to={item.path} c="inherit" fw={600}>
            <Untrusted text={item.name} />
          </Anchor>{" "}
          <Untrusted text={item.what} />
          {item.endsMs === null ? null : (
            <Text span c="dimmed" title={moment(item.endsMs)}>
              {item.endsMs < Date.now() ? ", ended " : ", ends "}
              {ago(item.endsMs)}
            </Text>
          )}
        </Text>
        {item.cause ? (
          <Text size="sm" c="dimmed" component="div" lineClamp={2}>
            <Prose text={item.cause} />
          </Text>
        ) : null}
      </Stack>
      <Button
        component={Link}
        to={item.path}
        size="xs"
        variant="default"
        aria-label={`${item.act}: ${item.name}`}
      >
        {item.act}
      </Button>
    </li>
  );
}

const MORE: Readonly<Record<Kind, string>> = {
  server: "more servers are down",
  login: "more logins end soon",
  approval: "more calls are pending approval",
  pin: "more servers changed their tools",
  key: "more keys end soon",
  finding: "more findings",
};

function More({ rest }: { readonly rest: Rest }) {
  return (
    <li className={styles.line}>
      <Anchor component={Link} to={rest.path} size="sm">
        {rest.many} {MORE[rest.kind]}
      </Anchor>
    </li>
  );
}
