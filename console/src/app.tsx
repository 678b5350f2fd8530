/** The console: its providers, its gate, and its pages, each loaded when it is first opened. */
import { Button, MantineProvider } from "@mantine/core";
import { Notifications } from "@mantine/notifications";
import { QueryClient, QueryClientProvider, useQuery } from "@tanstack/react-query";
import { type ComponentType, lazy } from "react";
import { createBrowserRouter, Navigate, type RouteObject, RouterProvider } from "react-router";
import { ApiError } from "./api/client";
import { leave } from "./api/leave";
import { meQuery } from "./api/me";
import { endSession, setCredential } from "./api/session";
import { isAnythingTyped } from "./api/typed";
import { LoginCard, LoginPage } from "./pages/login";
import { LoginAgain } from "./pages/login/again";
import { LoginFailure } from "./pages/login/failure";
import { Problem } from "./parts/problem";
import { Empty, Skeletons } from "./parts/states";
import { Shell } from "./shell";
import { theme } from "./theme";

const queries = new QueryClient({
  defaultOptions: {
    queries: {
      staleTime: 2_000,
      retry: (failures, error) =>
        failures < 2 && !(error instanceof ApiError && error.status >= 400 && error.status < 500),
    },
  },
});

function page(path: string, load: () => Promise<{ default: ComponentType }>): RouteObject {
  const Page = lazy(load);
  return { path, element: <Page />, errorElement: <Problem /> };
}

const router = createBrowserRouter(
  [
    { path: "/login", element: <LoginPage /> },
    {
      path: "/",
      element: <Gate />,
      errorElement: <Problem />,
      children: [
        page("", () => import("./pages/overview")),
        page("servers/*", () => import("./pages/servers")),
        page("tasks/*", () => import("./pages/tasks")),
        page("profiles/*", () => import("./pages/profiles")),
        page("scope", () => import("./pages/scope")),
        page("catalog/*", () => import("./pages/catalog")),
        { path: "integrations", element: <Navigate to="/connections" replace /> },
        page("connections", () => import("./pages/connections")),
        page("playground/*", () => import("./pages/playground")),
        page("guides/*", () => import("./pages/guides")),
        page("approvals/*", () => import("./pages/approvals")),
        page("pins/*", () => import("./pages/pins")),
        page("activity/*", () => import("./pages/activity")),
        page("unused/*", () => import("./pages/unused")),
        page("runs/*", () => import("./pages/runs")),
        page("models/*", () => import("./pages/models")),
        page("keys/*", () => import("./pages/keys")),
        { path: "*", element: <Empty title="Page not found">Choose a page from the menu.</Empty> },
      ],
    },
  ],
  { basename: "/console" },
);

/** Whether a failure means that the credential is invalid or, at the gate, that it may not use the console. */
function isRefusal(error: unknown, isAtGate: boolean): boolean {
  return error instanceof ApiError && (error.status === 401 || (isAtGate && error.status === 403));
}

/** Lets in callers that the gateway knows and shows the login to all others. If a login ends while something is typed,
 *  the page stays mounted and hidden behind the login. */
function Gate() {
  const me = useQuery(meQuery);
  if (me.data !== undefined) {
    const isEnded = me.isError && isRefusal(me.error, true);
    return (
      <>
        <div hidden={isEnded}>
          <Shell />
        </div>
        {isEnded ? <LoginAgain as={me.data} /> : null}
      </>
    );
  }
  if (!me.isError) return <Skeletons what="Loading the console" />;
  return isRefusal(me.error, true) ? (
    <LoginPage />
  ) : (
    <LoginCard title="Toolgate does not respond">
      <LoginFailure error={me.error} />
      <Button onClick={() => void me.refetch()}>Try again</Button>
    </LoginCard>
  );
}

/** A credential that was revoked or has expired leads back to the gate, which drops it: the next login would send it
 *  again. */
function onRefused(error: unknown, isAtGate: boolean): void {
  const isUnknown = error instanceof ApiError && error.status === 401;
  if (isAtGate && isUnknown) endSession();
  else if (isAtGate) setCredential(null);
  const me = queries.getQueryState(meQuery.queryKey);
  if (me?.data === undefined) return;
  if (!isAnythingTyped()) {
    endSession();
    void leave(queries);
  } else if (!isRefusal(me.error, true)) void queries.invalidateQueries({ queryKey: meQuery.queryKey });
}

queries.getQueryCache().subscribe((event) => {
  if (event.type !== "updated" || event.action.type !== "error") return;
  const isAtGate = event.query.queryKey[0] === "me";
  if (isRefusal(event.action.error, isAtGate)) onRefused(event.action.error, isAtGate);
});

queries.getMutationCache().subscribe((event) => {
  if (event.type !== "updated" || event.action.type !== "error") return;
  if (isRefusal(event.action.error, false)) onRefused(event.action.error, false);
});

export function App({ nonce }: { readonly nonce: string }) {
  return (
    <MantineProvider theme={theme} defaultColorScheme="auto" getStyleNonce={() => nonce}>
      <QueryClientProvider client={queries}>
        <Notifications position="top-right" />
        {/* At once: fields whose value is in the address would lose what is typed meanwhile. */}
        <RouterProvider router={router} useTransitions={false} />
      </QueryClientProvider>
    </MantineProvider>
  );
}
