/** The frame around every page: the menu, the caller, and whether the page is live. */
import {
  ActionIcon,
  AppShell,
  Badge,
  Burger,
  Button,
  Group,
  Image,
  Menu,
  NavLink,
  Text,
  Tooltip,
  useComputedColorScheme,
  useMantineColorScheme,
} from "@mantine/core";
import { useDisclosure } from "@mantine/hooks";
import { IconLogout, IconMoon, IconSun, IconUser } from "@tabler/icons-react";
import { useQueryClient } from "@tanstack/react-query";
import { Suspense, useEffect } from "react";
import { Navigate, Outlet, NavLink as RouterLink, useLocation } from "react-router";
import { leave } from "./api/leave";
import { useLive } from "./api/live";
import { reaches, useMe } from "./api/me";
import { PLACES } from "./nav";
import { Loading } from "./parts/states";
import { Untrusted } from "./parts/untrusted";

export function Shell() {
  const [isOpen, { toggle, close }] = useDisclosure();
  const me = useMe();
  const isLive = useLive(reaches(me.role, "viewer"));
  const places = PLACES.filter((one) => reaches(me.role, one.role));
  const [home = "/"] = places.map((one) => one.path);
  const { pathname } = useLocation();
  // biome-ignore lint/correctness/useExhaustiveDependencies: another page closes the menu of a phone
  useEffect(close, [pathname]);
  return (
    <AppShell
      header={{ height: 56 }}
      navbar={{ width: 220, breakpoint: "sm", collapsed: { mobile: !isOpen } }}
      padding="md"
    >
      <a href="#page" className="skip">
        Skip to content
      </a>
      <AppShell.Header>
        <Group h="100%" px="md" justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap">
            <Burger opened={isOpen} onClick={toggle} hiddenFrom="sm" size="sm" aria-label="Menu" />
            <Image src={`${import.meta.env.BASE_URL}logo.svg`} w={28} h={28} alt="" />
            <Text fw={700} size="lg" visibleFrom="xs">
              Toolgate
            </Text>
            <Badge variant="light" color="gray" tt="none" visibleFrom="sm">
              {me.environment}
            </Badge>
          </Group>
          <Group gap="xs" wrap="nowrap">
            {reaches(me.role, "viewer") ? <LiveBadge isLive={isLive} /> : null}
            <SchemeToggle />
            <Who />
          </Group>
        </Group>
      </AppShell.Header>
      <AppShell.Navbar p="xs" aria-label="Pages">
        {places.map((one) => (
          <NavLink
            key={one.path}
            component={RouterLink}
            to={one.path}
            label={one.title}
            leftSection={<one.icon size={18} stroke={1.6} />}
            active={one.path === "/" ? pathname === "/" : pathname.startsWith(one.path)}
          />
        ))}
      </AppShell.Navbar>
      <AppShell.Main id="page" tabIndex={-1}>
        <Suspense fallback={<Loading />}>
          {/* Not every role may open the overview, but every login starts there. */}
          {pathname === "/" && home !== "/" ? <Navigate to={home} replace /> : <Outlet />}
        </Suspense>
      </AppShell.Main>
    </AppShell>
  );
}

function LiveBadge({ isLive }: { readonly isLive: boolean }) {
  const label = isLive ? "Live: changes appear at once" : "Reconnecting: this page may be out of date";
  return (
    <Tooltip label={label}>
      <Badge variant="dot" color={isLive ? "green" : "orange"} tt="none" miw="max-content" aria-label={label}>
        {isLive ? "live" : "stale"}
      </Badge>
    </Tooltip>
  );
}

function SchemeToggle() {
  const { setColorScheme } = useMantineColorScheme();
  const isDark = useComputedColorScheme("light") === "dark";
  const label = isDark ? "Light mode" : "Dark mode";
  return (
    <ActionIcon
      variant="default"
      size="lg"
      aria-label={label}
      onClick={() => setColorScheme(isDark ? "light" : "dark")}
    >
      {isDark ? <IconSun size={18} /> : <IconMoon size={18} />}
    </ActionIcon>
  );
}

function Who() {
  const me = useMe();
  const queries = useQueryClient();
  return (
    <Menu position="bottom-end">
      <Menu.Target>
        <Button variant="default" size="sm" leftSection={<IconUser size={16} />} maw={200}>
          <Untrusted text={me.principal} />
        </Button>
      </Menu.Target>
      <Menu.Dropdown>
        <Menu.Label>
          Role <b>{me.role}</b>
          {me.by === "loopback" ? ", trusted over loopback" : `, authenticated by ${me.by}`}
        </Menu.Label>
        <Menu.Label>Version {me.version}</Menu.Label>
        {me.by === "loopback" ? null : (
          <Menu.Item leftSection={<IconLogout size={16} />} onClick={() => void leave(queries)}>
            Log out
          </Menu.Item>
        )}
      </Menu.Dropdown>
    </Menu>
  );
}
