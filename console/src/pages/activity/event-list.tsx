/** The audit log: calls, denials, changes and decisions. */
import { Button, Switch } from "@mantine/core";
import { useMemo, useState } from "react";
import { useSearchParams } from "react-router";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure, Skeletons } from "@/parts/states";
import { useTimeRange } from "@/parts/time-range";
import { EventTable } from "./event-table";
import { Export } from "./export";
import { type Asked, readAsked, writeAsked } from "./filter";
import { Filters } from "./filters";
import { useEvents } from "./use-events";

export function EventList() {
  const [params, setParams] = useSearchParams();
  const [isLive, setLive] = useState(true);
  const asked = readAsked(params);
  const time = useTimeRange("30d");
  // Not moved on by every render: that would be another question each time.
  const begin = useMemo(() => Date.now() - time.ms, [time.ms]);
  const hasTimes = asked.since !== undefined || asked.until !== undefined;
  const found = useEvents(hasTimes ? asked : { ...asked, since: begin }, isLive && asked.until === undefined);
  const { kept, events } = found;
  const ask = (next: Asked) => setParams(writeAsked(next));
  return (
    <>
      <PageHead
        title="Activity"
        about="The audit log: every call, denial, change and decision, newest first."
      >
        <Switch
          label="Follow live"
          checked={isLive && asked.until === undefined}
          disabled={asked.until !== undefined}
          onChange={({ currentTarget }) => setLive(currentTarget.checked)}
        />
        <Export asked={asked} />
      </PageHead>
      <Filters asked={asked} onChange={ask} time={time} />
      {kept.isError ? <Failure error={kept.error} onRetry={() => void kept.refetch()} /> : null}
      {kept.isPending ? <Skeletons what="Loading the audit log" /> : null}
      {kept.data === undefined ? null : (
        <EventTable
          label="Events"
          events={events}
          onNarrow={(name, value) => ask({ ...asked, [name]: value })}
          empty={
            writeAsked(asked).size === 0 ? (
              <Empty title="No events yet">Calls and changes of {time.words} appear here.</Empty>
            ) : (
              <Empty
                title="No events match"
                firstStep={
                  <Button variant="default" onClick={() => ask({})}>
                    Clear all filters
                  </Button>
                }
              >
                Clear a filter, or choose a longer time range.
              </Empty>
            )
          }
        />
      )}
      {kept.hasNextPage ? (
        <Button
          variant="default"
          mt="sm"
          onClick={() => void kept.fetchNextPage()}
          loading={kept.isFetchingNextPage}
        >
          Show older
        </Button>
      ) : null}
    </>
  );
}
