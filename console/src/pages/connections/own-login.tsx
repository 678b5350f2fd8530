/** The caller's own login to a server that requires one for each caller: state, login and logout. */
import { Button, Group, Stack, Text } from "@mantine/core";
import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, take } from "@/api/client";
import { Copy } from "@/parts/copy";
import { goTo } from "@/parts/elsewhere";
import { Failure } from "@/parts/states";
import { ago, moment } from "@/parts/time";
import { visibleText } from "@/parts/visible";
import { keepLogin, returnUri } from "../servers/server-login";
import { INTEGRATIONS_KEY, type Integration, loginState } from "./switches";

export function OwnLogin({ row }: { readonly row: Integration }) {
  const state = loginState(row, Date.now());
  if (state === "none") return <Text c="dimmed">not needed</Text>;
  const expires = row.login?.expires_at_s ?? null;
  return (
    <Stack gap={4} align="flex-start">
      <Text size="sm" c={state === "in" ? undefined : "var(--tone-bad)"}>
        {state === "out" ? "not logged in" : state === "over" ? "expired" : "logged in"}
        {expires === null || row.login?.renews ? null : (
          <span title={moment(expires * 1000)}>
            {state === "in" ? ", until " : " "}
            {ago(expires * 1000)}
          </span>
        )}
      </Text>
      <Ways row={row} isIn={state === "in"} />
    </Stack>
  );
}

function Ways({ row, isIn }: { readonly row: Integration; readonly isIn: boolean }) {
  const queries = useQueryClient();
  const params = { path: { server_id: row.server_id } };
  const uri = returnUri(window.location);
  const begin = useMutation({
    mutationFn: async (redirect_uri: string) => {
      const body = { redirect_uri, shared: false };
      const begun = await take(api.POST("/api/v1/mcp/servers/{server_id}/login", { params, body }));
      keepLogin({ serverId: row.server_id, state: begun.state, isShared: false, from: "/connections" });
      goTo(begun.authorization_url);
    },
  });
  const end = useMutation({
    mutationFn: () => take(api.DELETE("/api/v1/mcp/servers/{server_id}/login", { params })),
    onSettled: () => queries.invalidateQueries({ queryKey: INTEGRATIONS_KEY }),
  });
  const error = begin.error ?? end.error;
  const name = visibleText(row.server_id);
  return (
    <>
      <Group gap="xs">
        {uri === null ? (
          <FromTerminal command={`toolgate servers login ${row.server_id}`} />
        ) : (
          <Button
            size="compact-xs"
            variant={isIn ? "default" : "filled"}
            loading={begin.isPending}
            onClick={() => begin.mutate(uri)}
            aria-label={`${isIn ? "Log in again" : "Log in"} to ${name}`}
          >
            {isIn ? "Log in again" : "Log in"}
          </Button>
        )}
        {row.login === null ? null : (
          <Button
            size="compact-xs"
            variant="default"
            loading={end.isPending}
            onClick={() => end.mutate()}
            aria-label={`Log out of ${name}`}
          >
            Log out
          </Button>
        )}
      </Group>
      {error === null ? null : <Failure error={error} />}
    </>
  );
}

/** A code returns only to the caller's own machine, which does not serve this page. */
function FromTerminal({ command }: { readonly command: string }) {
  return (
    <Group gap={2} wrap="nowrap">
      <span className="mono">{visibleText(command)}</span>
      <Copy text={command} label="Copy command" />
    </Group>
  );
}
