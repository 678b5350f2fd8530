/** The audit log: calls, denials, changes and decisions. */
import { Button, Switch } from "@mantine/core";
import { useState } from "react";
import { useSearchParams } from "react-router";
import { PageHead } from "@/parts/page-head";
import { Empty, Failure, Skeletons } from "@/parts/states";
import { EventTable } from "./event-table";
import { Export } from "./export";
import { type Asked, readAsked, writeAsked } from "./filter";
import { Filters } from "./filters";
import { useEvents } from "./use-events";

export function EventList() {
  const [params, setParams] = useSearchParams();
  const [isLive, setLive] = useState(true);
  const asked = readAsked(params);
  const { kept, events } = useEvents(asked, isLive && asked.until === undefined);
  const ask = (next: Asked) => setParams(writeAsked(next));
  return (
    <>
      <PageHead
        title="Activity"
        about="The audit log: every call, denial, change and decision, newest first."
      >
        <Switch
          label="Live"
          checked={isLive && asked.until === undefined}
          disabled={asked.until !== undefined}
          onChange={({ currentTarget }) => setLive(currentTarget.checked)}
        />
        <Export asked={asked} />
      </PageHead>
      <Filters asked={asked} onChange={ask} />
      {kept.isError ? <Failure error={kept.error} onRetry={() => void kept.refetch()} /> : null}
      {kept.isPending ? <Skeletons what="Loading the audit log" /> : null}
      {kept.data === undefined ? null : (
        <EventTable
          label="Events"
          events={events}
          onNarrow={(name, value) => ask({ ...asked, [name]: value })}
          empty={
            writeAsked(asked).size === 0 ? (
              <Empty title="No events yet">Calls and changes appear here.</Empty>
            ) : (
              <Empty title="No events match">Clear a filter.</Empty>
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
