/** The OAuth login of a server: who is logged in, and login and logout. */
import { Alert, Button, Group, Stack, Text } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { api, take } from "@/api/client";
import { useMay } from "@/api/me";
import { CodeBlock } from "@/parts/copy";
import { goTo } from "@/parts/elsewhere";
import { Failure } from "@/parts/states";
import { ago } from "@/parts/time";
import { Untrusted } from "@/parts/untrusted";
import { useRefresh } from "@/parts/use-writing";
import type { Server } from "./server-form";
import { keepLogin, returnUri } from "./server-login";

/** Shown for servers that use the authorization code grant. */
export function LoginState({ server }: { readonly server: Server }) {
  const isOwn = server.http?.oauth?.per_principal === true;
  return (
    <Stack gap="xs">
      {server.login ? (
        <Text size="sm" component="div">
          {isOwn ? "For listing tools, logged in at " : "Logged in at "}
          <Untrusted text={server.login.issuer} mono />
          {lasting(server.login)}
        </Text>
      ) : (
        <Alert color="yellow" title="No one has logged in">
          {isOwn
            ? "The gateway cannot list tools until an admin logs in. After that, each principal logs in separately."
            : "The server cannot be used until an admin logs in."}
        </Alert>
      )}
      <Ways server={server} isOwn={isOwn} />
    </Stack>
  );
}

function lasting(login: NonNullable<Server["login"]>): string {
  const expiry = login.expires_at_s === null ? "" : `; the token expires ${ago(login.expires_at_s * 1_000)}`;
  return `${expiry}${login.renews ? ", and is refreshed automatically." : "."}`;
}

interface WaysProps {
  readonly server: Server;
  /** Each principal logs in for itself. */
  readonly isOwn: boolean;
}

function Ways({ server, isOwn }: WaysProps) {
  const isAdmin = useMay("admin");
  const uri = returnUri(window.location);
  const command = `toolgate servers login ${server.server_id}`;
  if (!isAdmin && !isOwn) return null;
  return (
    <>
      {uri === null ? null : (
        <Group gap="xs">
          {isAdmin ? <LogIn server={server} uri={uri} isShared={isOwn} /> : null}
          {isOwn ? <LogIn server={server} uri={uri} isShared={false} isForOneself /> : null}
          {isAdmin && server.login ? <LogOut server={server} isShared={isOwn} /> : null}
        </Group>
      )}
      <Text size="sm">{uri === null ? "Log in from a terminal:" : "Or from a terminal:"}</Text>
      {isAdmin ? (
        <CodeBlock text={isOwn ? `${command} --shared` : command} label="the command to log in" />
      ) : null}
      {isOwn ? <CodeBlock text={command} label="the command to log in yourself" /> : null}
    </>
  );
}

interface LogInProps {
  readonly server: Server;
  readonly uri: string;
  readonly isShared: boolean;
  readonly isForOneself?: boolean;
}

function LogIn({ server, uri, isShared, isForOneself = false }: LogInProps) {
  const begin = useMutation({
    mutationFn: async () => {
      const begun = await take(
        api.POST("/api/v1/mcp/servers/{server_id}/login", {
          params: { path: { server_id: server.server_id } },
          body: { redirect_uri: uri, shared: isShared },
        }),
      );
      keepLogin({ serverId: server.server_id, state: begun.state, isShared });
      goTo(begun.authorization_url);
    },
  });
  const again = server.login && !isForOneself ? "Log in again" : "Log in";
  return (
    <>
      <Button size="xs" variant="default" loading={begin.isPending} onClick={() => begin.mutate()}>
        {isForOneself ? "Log in as yourself" : again}
      </Button>
      {begin.isError ? <Failure error={begin.error} /> : null}
    </>
  );
}

function LogOut({ server, isShared }: { readonly server: Server; readonly isShared: boolean }) {
  const end = useMutation({
    mutationFn: () =>
      take(
        api.DELETE("/api/v1/mcp/servers/{server_id}/login", {
          params: { path: { server_id: server.server_id }, query: { shared: isShared } },
        }),
      ),
    onSettled: useRefresh("server"),
  });
  return (
    <>
      <Button size="xs" variant="default" loading={end.isPending} onClick={() => end.mutate()}>
        Log out
      </Button>
      {end.isError ? <Failure error={end.error} /> : null}
    </>
  );
}
