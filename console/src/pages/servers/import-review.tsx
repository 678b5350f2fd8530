/** The import of a document: what it would do, which of its servers are taken, and what came of it. */
import { Button, Card, Group, Stack, Title } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "react-router";
import { serversQuery } from "@/api/records";
import { DataTable } from "@/parts/data-table";
import { SAVED } from "@/parts/leave-guard";
import { Failure, Loaded } from "@/parts/states";
import { ImportPreview } from "./import-preview";
import { type ImportAsked, sendImport } from "./import-request";
import { type Format, replacedBy, wanted } from "./imports";
import { toRows } from "./listing";
import { RESULT_COLUMNS } from "./server-columns";

interface ImportReviewProps {
  readonly content: string;
  readonly format: Format;
  readonly allowed?: readonly string[];
  /** Called once servers are stored. */
  readonly onDone?: () => void;
}

const NONE: readonly string[] = [];

function useDryRun(asked: ImportAsked, isEnabled = true) {
  return useQuery({
    queryKey: ["derived", "import", asked],
    queryFn: () => sendImport(asked, null),
    enabled: isEnabled,
    // What is shown stays while the plan is computed again, so that users keep their place.
    placeholderData: keepPreviousData,
    retry: false,
    gcTime: 0,
  });
}

export function ImportReview({ content, format, allowed = NONE, onDone }: ImportReviewProps) {
  const queries = useQueryClient();
  const [picked, setPicked] = useState<ReadonlySet<string> | null>(null);
  const whole = useDryRun({ content, format, allowed_tools: allowed, only: null });
  // Nothing that replaces a record is ticked at first.
  const left = picked ?? (whole.data ? replacedBy(whole.data) : new Set<string>());
  const asked = { content, format, allowed_tools: allowed, only: wanted(whole.data, left) };
  const look = useDryRun(asked, whole.isSuccess);
  const apply = useMutation({
    mutationFn: (plan: string) => sendImport(asked, plan),
    onSuccess: () => {
      onDone?.();
      void queries.invalidateQueries({ queryKey: ["server"] });
    },
  });
  if (apply.data) return <ImportResult ids={apply.data.changes.map((one) => one.id)} />;
  if (whole.isError) return <Failure error={whole.error} onRetry={() => void whole.refetch()} />;
  return (
    <Loaded query={look} what="Reading the definitions">
      {(answer) => (
        <Stack>
          <ImportPreview
            answer={answer}
            whole={whole.data ?? answer}
            left={left}
            onLeave={setPicked}
            isCurrent={!look.isPlaceholderData && !look.isFetching}
            isPending={apply.isPending}
            onApply={(plan) => apply.mutate(plan)}
          />
          {apply.isError ? <Failure error={apply.error} onRetry={() => void look.refetch()} /> : null}
        </Stack>
      )}
    </Loaded>
  );
}

/** The servers that were stored, as they start. */
function ImportResult({ ids }: { readonly ids: readonly string[] }) {
  const servers = useQuery(serversQuery);
  return (
    <Card withBorder component="section" aria-label="Imported">
      <Stack>
        <Title order={2} size="h4">
          {ids.length === 1 ? "1 server was stored" : `${ids.length} servers were stored`}
        </Title>
        <Loaded query={servers} what="Loading the servers">
          {(all) => (
            <DataTable
              label="Imported servers"
              rows={toRows(
                all.filter((one) => ids.includes(one.server_id)),
                undefined,
              )}
              columns={RESULT_COLUMNS}
              keyOf={(row) => row.server.server_id}
              hrefOf={(row) => `/servers/${row.server.server_id}`}
            />
          )}
        </Loaded>
        <Group justify="flex-end">
          <Button component={Link} to="/servers" state={SAVED} variant="default">
            All servers
          </Button>
        </Group>
      </Stack>
    </Card>
  );
}
