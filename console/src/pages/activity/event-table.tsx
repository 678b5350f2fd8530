/** Events, newest first. A click on a value filters by it; a click on a row opens the event. */
import { Badge, Text, UnstyledButton } from "@mantine/core";
import type { ReactNode } from "react";
import { type Column, DataTable } from "@/parts/data-table";
import { duration, moment } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import type { TextName } from "./filter";
import { colourOf, type Event, resultOf, subjectOf, tookMs } from "./words";

interface EventTableProps {
  readonly label: string;
  readonly events: readonly Event[];
  /** Without it, values are only shown. */
  readonly onNarrow?: (name: TextName, value: string) => void;
  readonly empty?: ReactNode;
}

export function EventTable({ onNarrow, events, ...table }: EventTableProps) {
  const value = (name: TextName, text: string | null, shown = text ?? "") => {
    if (!text) return null;
    if (onNarrow === undefined) return <Untrusted text={shown} mono />;
    return (
      <UnstyledButton
        onClick={() => onNarrow(name, text)}
        title="Filter by this value"
        fz="sm"
        td="underline"
        ta="left"
      >
        <Untrusted text={shown} mono />
      </UnstyledButton>
    );
  };
  const columns: readonly Column<Event>[] = [
    { key: "at", title: "Time", show: (one) => <When ms={one.at_ms} />, width: "min(150px, 28vw)" },
    { key: "result", title: "Result", show: (one) => <Result event={one} />, width: 150 },
    {
      key: "what",
      title: "What",
      show: (one) =>
        one.tool ? value("tool", one.tool, subjectOf(one)) : <Untrusted text={subjectOf(one)} />,
    },
    { key: "who", title: "Caller", show: (one) => value("principal", one.principal), isMinor: true },
    { key: "task", title: "Task", show: (one) => value("task", one.task_id), isMinor: true },
    { key: "code", title: "Reason", show: (one) => value("code", one.code), isMinor: true },
    { key: "door", title: "Endpoint", show: (one) => value("door", one.door), isMinor: true, width: 90 },
    {
      key: "took",
      title: "Duration",
      show: (one) => <Took event={one} />,
      align: "right",
      isMinor: true,
      width: 80,
    },
  ];
  return (
    <DataTable
      rows={events}
      columns={columns}
      keyOf={(one) => one.event_id}
      hrefOf={(one) => `/activity/${encodeURIComponent(one.event_id)}`}
      {...table}
    />
  );
}

function When({ ms }: { readonly ms: number }) {
  return (
    <Text size="sm" title={moment(ms)}>
      {new Date(ms).toLocaleString("en", {
        month: "short",
        day: "numeric",
        hour: "2-digit",
        minute: "2-digit",
        second: "2-digit",
        hourCycle: "h23",
      })}
    </Text>
  );
}

export function Result({ event }: { readonly event: Event }) {
  return (
    <Badge color={colourOf(event)} variant="light" tt="none">
      {resultOf(event)}
    </Badge>
  );
}

function Took({ event }: { readonly event: Event }) {
  const ms = tookMs(event);
  return ms === null ? null : duration(ms);
}
