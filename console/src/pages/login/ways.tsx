/** The ways to log in: a key, or an issuer. */
import { Alert, Button, Divider, PasswordInput, Stack } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { api, take } from "@/api/client";
import { LOGIN_KEY } from "@/api/leave";
import { Prose } from "@/parts/prose";
import { Untrusted } from "@/parts/untrusted";
import { LoginFailure } from "./failure";
import { type Issuer, toIssuer } from "./pkce";
import { useEnter } from "./use-enter";

interface WaysProps {
  /** Where the browser goes to log in at an issuer. */
  readonly go: (url: string) => void;
}

export function Ways({ go }: WaysProps) {
  const ways = useQuery({
    queryKey: [LOGIN_KEY],
    queryFn: () => take(api.GET("/api/v1/login")),
    retry: false,
  });
  return (
    <>
      <KeyForm />
      {ways.data?.oidc ? <IssuerWay issuer={ways.data.oidc} go={go} /> : null}
    </>
  );
}

function IssuerWay({ issuer, go }: WaysProps & { readonly issuer: Issuer }) {
  const begin = useMutation({
    mutationFn: async () => go(await toIssuer(issuer, window.location.pathname + window.location.search)),
  });
  return (
    <>
      <Divider label="or" />
      <Button
        variant="default"
        onClick={() => begin.mutate()}
        loading={begin.isPending}
        disabled={!window.isSecureContext}
      >
        Log in with <Untrusted text={hostOf(issuer.issuer)} />
      </Button>
      {window.isSecureContext ? null : (
        <Alert color="yellow">Log in at an issuer over HTTPS or on localhost only.</Alert>
      )}
      {begin.isError ? <LoginFailure error={begin.error} /> : null}
    </>
  );
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : url;
}

function KeyForm() {
  const [key, setKey] = useState("");
  const field = useRef<HTMLInputElement>(null);
  useEffect(() => field.current?.focus(), []);
  const attempt = useMutation({ mutationFn: useEnter() });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        attempt.mutate(key.trim());
      }}
    >
      <Stack>
        <PasswordInput
          ref={field}
          label="Key"
          description={
            <Prose text="From `toolgate keys create`, or from an admin. It is kept in this tab only." />
          }
          value={key}
          onChange={(event) => setKey(event.currentTarget.value)}
          autoComplete="off"
          required
          data-autofocus
        />
        {attempt.isError ? <LoginFailure error={attempt.error} /> : null}
        <Button type="submit" loading={attempt.isPending} disabled={key.trim() === ""}>
          Log in
        </Button>
      </Stack>
    </form>
  );
}
