/** The login page: by key, or at an issuer. */
import { Alert, Button, Card, Center, Image, Stack, Text, Title } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useEffect, useRef } from "react";
import { useNavigate, useSearchParams } from "react-router";
import { endedBy } from "@/api/session";
import { goTo } from "@/parts/elsewhere";
import { Skeletons } from "@/parts/states";
import { LoginFailure } from "./failure";
import { handOver } from "./other-tab";
import { isBegunHere } from "./pkce";
import { useFinish } from "./use-enter";
import { Ways } from "./ways";

export function LoginPage() {
  const [query] = useSearchParams();
  const isReturning = query.has("state") && (query.has("code") || query.has("error"));
  return (
    <LoginCard title="Log in to Toolgate">
      {isReturning ? (
        <Return query={query} />
      ) : (
        <>
          <Ended by={endedBy()} />
          <Ways go={goTo} />
        </>
      )}
    </LoginCard>
  );
}

/** Why one is here again. */
function Ended({ by }: { readonly by: ReturnType<typeof endedBy> }) {
  if (by === null) return null;
  return by === "key" ? (
    <Alert color="yellow" title="Your key was revoked or has expired">
      Log in with another key. If you have none, ask an admin.
    </Alert>
  ) : (
    <Alert color="yellow" title="Your login has expired">
      Log in again.
    </Alert>
  );
}

export function LoginCard({ title, children }: { readonly title: string; readonly children: ReactNode }) {
  return (
    <Center mih="100vh" p="md" component="main" bg="var(--page)">
      <Card withBorder w={420} maw="100%" padding="lg">
        <Stack>
          <Image src={`${import.meta.env.BASE_URL}logo.svg`} w={44} h={44} alt="" />
          <Title order={1} size="h3">
            {title}
          </Title>
          {children}
        </Stack>
      </Card>
    </Center>
  );
}

/** The redirect page: exchanges the code once, here or in the tab that waits for it. */
function Return({ query }: { readonly query: URLSearchParams }) {
  const navigate = useNavigate();
  const finish = useFinish();
  const isBegun = useRef(false);
  const attempt = useMutation({
    mutationFn: async () => (!isBegunHere(query) && (await handOver(query)) ? null : finish(query)),
    onSuccess: (from) => {
      if (from === null) window.close();
      else void navigate(from.startsWith("/login") ? "/" : from, { replace: true });
    },
  });
  const { mutate } = attempt;
  useEffect(() => {
    if (isBegun.current) return;
    isBegun.current = true;
    mutate();
  }, [mutate]);
  if (attempt.data === null) return <Text>You are logged in in the other tab. You can close this one.</Text>;
  if (!attempt.isError) return <Skeletons what="Logging in" />;
  return (
    <>
      <LoginFailure error={attempt.error} />
      <Button variant="default" onClick={() => void navigate("/", { replace: true })}>
        Start again
      </Button>
      <Text size="sm" c="dimmed">
        This attempt was discarded.
      </Text>
    </>
  );
}
