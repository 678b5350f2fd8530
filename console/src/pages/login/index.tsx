/** Who are you? A key, or an issuer that knows you. */
import {
  Alert,
  Button,
  Card,
  Center,
  Divider,
  Image,
  PasswordInput,
  Stack,
  Text,
  Title,
} from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { api, take } from "@/api/client";
import { meQuery } from "@/api/me";
import { setCredential } from "@/api/session";
import { Failure, Loading } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { beginLogin, redirectUri, takeBegun } from "./pkce";

export function LoginPage() {
  const [query] = useSearchParams();
  const isReturning = query.has("state") && (query.has("code") || query.has("error"));
  return (
    <Center mih="100vh" p="md" component="main">
      <Card withBorder w={420} maw="100%" padding="lg">
        <Stack>
          <Image src={`${import.meta.env.BASE_URL}logo.svg`} w={44} h={44} alt="" />
          <Title order={1} size="h3">
            Log in to Toolgate
          </Title>
          {isReturning ? <Return query={query} /> : <Ways />}
        </Stack>
      </Card>
    </Center>
  );
}

function Ways() {
  const ways = useQuery({ queryKey: ["login"], queryFn: () => take(api.GET("/api/v1/login")), retry: false });
  const oidc = ways.data?.oidc;
  const begin = useMutation({
    mutationFn: async () => {
      if (oidc)
        window.location.assign(await beginLogin(oidc, window.location.pathname + window.location.search));
    },
  });
  return (
    <>
      <KeyForm />
      {oidc ? (
        <>
          <Divider label="or" />
          <Button
            variant="default"
            onClick={() => begin.mutate()}
            loading={begin.isPending}
            disabled={!window.isSecureContext}
          >
            Log in with <Untrusted text={hostOf(oidc.issuer)} />
          </Button>
          {window.isSecureContext ? null : (
            <Alert color="yellow">A login with an issuer needs HTTPS, or this machine's own address.</Alert>
          )}
          {begin.isError ? <Failure error={begin.error} /> : null}
        </>
      ) : null}
    </>
  );
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : url;
}

/** The key is tried before it is kept, and beside the gate: that would close on this page while it asks. */
function useEnter() {
  const queries = useQueryClient();
  return async (token: string) => {
    const headers = { Authorization: `Bearer ${token}` };
    const me = await take(api.GET("/api/v1/me", { headers }));
    setCredential(token);
    queries.setQueryData(meQuery.queryKey, me);
  };
}

function KeyForm() {
  const [key, setKey] = useState("");
  const enter = useEnter();
  const attempt = useMutation({ mutationFn: enter });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        attempt.mutate(key.trim());
      }}
    >
      <Stack>
        <PasswordInput
          label="Key"
          description="As `toolgate keys add` printed it. It is kept in this tab alone."
          value={key}
          onChange={(event) => setKey(event.currentTarget.value)}
          autoComplete="off"
          required
          data-autofocus
        />
        {attempt.isError ? <Failure error={attempt.error} /> : null}
        <Button type="submit" loading={attempt.isPending} disabled={key.trim() === ""}>
          Log in
        </Button>
      </Stack>
    </form>
  );
}

/** Back from the issuer: the code is handed in, once. */
function Return({ query }: { readonly query: URLSearchParams }) {
  const navigate = useNavigate();
  const enter = useEnter();
  const isBegun = useRef(false);
  const finish = useMutation({
    mutationFn: async () => {
      const begun = takeBegun(query);
      if (begun === null) throw new Error("This login was not begun in this tab. Begin again.");
      const code = query.get("code");
      if (code === null)
        throw new Error(query.get("error_description") ?? query.get("error") ?? "The login was refused.");
      const body = { code, code_verifier: begun.verifier, redirect_uri: redirectUri() };
      await enter((await take(api.POST("/api/v1/login", { body }))).token);
      return begun.from.replace(/^\/console\/?/, "/");
    },
    onSuccess: (from) => void navigate(from.startsWith("/login") ? "/" : from, { replace: true }),
  });
  const { mutate } = finish;
  useEffect(() => {
    if (isBegun.current) return;
    isBegun.current = true;
    mutate();
  }, [mutate]);
  if (!finish.isError) return <Loading what="Logging in" />;
  return (
    <>
      <Failure error={finish.error} />
      <Button variant="default" onClick={() => void navigate("/", { replace: true })}>
        Begin again
      </Button>
      <Text size="sm" c="dimmed">
        Nothing was kept of this attempt.
      </Text>
    </>
  );
}
