/** The OAuth redirect page: exchanges the authorization code, once. */
import { Button, Stack } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { Link, useNavigate, useSearchParams } from "react-router";
import { api, take } from "@/api/client";
import { PageHead } from "@/parts/page-head";
import { Failure, Skeletons } from "@/parts/states";
import { useRefresh } from "@/parts/use-writing";
import { takeLogin } from "./server-login";

/** Returns the page to continue with. */
async function finish(answer: URLSearchParams): Promise<string> {
  const begun = takeLogin(answer);
  if (begun === null) throw new Error("This login was not started in this tab. Start again.");
  const code = answer.get("code");
  if (code === null)
    throw new Error(
      answer.get("error_description") ??
        answer.get("error") ??
        "The authorization server rejected the login.",
    );
  await take(
    api.POST("/api/v1/mcp/servers/{server_id}/login/finish", {
      params: { path: { server_id: begun.serverId } },
      body: { state: begun.state, code, iss: answer.get("iss"), shared: begun.isShared },
    }),
  );
  return begun.from ?? `/servers/${encodeURIComponent(begun.serverId)}`;
}

export function LoginReturn() {
  const [answer] = useSearchParams();
  const navigate = useNavigate();
  const refresh = useRefresh("server");
  const isBegun = useRef(false);
  const { mutate, isError, error } = useMutation({
    mutationFn: finish,
    onSuccess: (from) => {
      void navigate(from, { replace: true });
      void refresh();
    },
  });
  useEffect(() => {
    if (isBegun.current) return;
    isBegun.current = true;
    mutate(answer);
  }, [mutate, answer]);
  if (!isError) return <Skeletons what="Logging in" />;
  return (
    <Stack align="flex-start">
      <PageHead title="Login failed" />
      <Failure error={error} />
      <Button variant="default" component={Link} to="/servers">
        All servers
      </Button>
    </Stack>
  );
}
