/** The frame around every page: the menu with what needs attention, the search, the caller, and whether the page is live. */
import {
  ActionIcon,
  AppShell,
  Badge,
  Burger,
  Button,
  Group,
  Image,
  Menu,
  Tooltip,
  useComputedColorScheme,
  useMantineColorScheme,
  VisuallyHidden,
} from "@mantine/core";
import { useDisclosure, useHotkeys } from "@mantine/hooks";
import { IconBook, IconLogout, IconMoon, IconSearch, IconSun, IconUser } from "@tabler/icons-react";
import { useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useEffect, useState } from "react";
import { Link, Navigate, Outlet, useLocation } from "react-router";
import { leave } from "./api/leave";
import { useLive } from "./api/live";
import { reaches, useMe } from "./api/me";
import { GROUPS, type Place, placeOf } from "./nav";
import { MOST_PENDING, useAttention } from "./parts/attention";
import { Skeletons } from "./parts/states";
import { Untrusted } from "./parts/untrusted";
import styles from "./shell.module.css";

/** By then most pages are usable, also with 500 servers: see `make bench-console`. */
const SETTLED_MS = 1_500;

const Palette = lazy(() => import("./palette"));

export function Shell() {
  const [isOpen, { toggle, close }] = useDisclosure();
  const [isSearching, search] = useDisclosure();
  const me = useMe();
  const isLive = useLive(reaches(me.role, "viewer"));
  const { pathname } = useLocation();
  useHotkeys([["mod+K", search.open]], []);
  // biome-ignore lint/correctness/useExhaustiveDependencies: another page closes the menu of a phone
  useEffect(close, [pathname]);
  return (
    <AppShell
      layout="alt"
      header={{ height: 56 }}
      navbar={{ width: 224, breakpoint: "sm", collapsed: { mobile: !isOpen } }}
      padding={{ base: "sm", sm: "lg" }}
    >
      <a href="#page" className="skip">
        Skip to content
      </a>
      <AppShell.Header>
        <Group h="100%" px={{ base: "sm", sm: "lg" }} justify="space-between" wrap="nowrap">
          <Group gap="sm" wrap="nowrap" style={{ flex: 1 }}>
            <Burger opened={isOpen} onClick={toggle} hiddenFrom="sm" size="sm" aria-label="Menu" />
            <SearchButton onOpen={search.open} />
          </Group>
          <Group gap="xs" wrap="nowrap">
            {reaches(me.role, "viewer") ? <LiveBadge isLive={isLive} /> : null}
            <ActionIcon component={Link} to="/guides" variant="default" size="lg" aria-label="Guides">
              <IconBook size={18} />
            </ActionIcon>
            <SchemeToggle />
            <Account />
          </Group>
        </Group>
      </AppShell.Header>
      <Navigation isOpen={isOpen} onToggle={toggle} />
      <AppShell.Main id="page" tabIndex={-1}>
        <Suspense fallback={<Skeletons />}>
          <Page />
        </Suspense>
      </AppShell.Main>
      <Suspense fallback={null}>{isSearching ? <Palette onClose={search.close} /> : null}</Suspense>
    </AppShell>
  );
}

/** Not every role may open the overview, but every login starts there. */
function Page() {
  const me = useMe();
  const { pathname } = useLocation();
  const home = GROUPS.flatMap((group) => group.places).find((one) => reaches(me.role, one.role))?.path ?? "/";
  return pathname === "/" && home !== "/" ? <Navigate to={home} replace /> : <Outlet />;
}

function SearchButton({ onOpen }: { readonly onOpen: () => void }) {
  return (
    <button
      type="button"
      className={styles.search}
      onClick={onOpen}
      aria-keyshortcuts="Control+K"
      aria-label="Search or run a command"
    >
      <IconSearch size={16} aria-hidden />
      <span>Search or run a command</span>
      <kbd aria-hidden />
    </button>
  );
}

interface NavigationProps {
  readonly isOpen: boolean;
  readonly onToggle: () => void;
}

function Navigation({ isOpen, onToggle }: NavigationProps) {
  const me = useMe();
  const here = placeOf(useLocation().pathname);
  const counts = useCounts();
  const groups = GROUPS.map(({ title, places }) => ({
    title,
    places: places.filter((one) => reaches(me.role, one.role)),
  }));
  return (
    <AppShell.Navbar p="sm" aria-label="Pages" className={styles.menu}>
      <div className={styles.brand}>
        <Burger
          opened={isOpen}
          onClick={onToggle}
          hiddenFrom="sm"
          size="sm"
          color="#fff"
          aria-label="Close"
        />
        <Image src={`${import.meta.env.BASE_URL}logo.svg`} w={28} h={28} alt="" />
        Toolgate
        <span className={styles.environment}>{me.environment}</span>
      </div>
      <div style={{ overflowY: "auto", flex: 1 }}>
        {groups
          .filter((group) => group.places.length > 0)
          .map((group) => (
            <section key={group.title} aria-label={group.title || "Start"}>
              {group.title ? <div className={styles.group}>{group.title}</div> : null}
              {group.places.map((one) => (
                <MenuLink key={one.path} place={one} isHere={one === here} count={counts[one.path]} />
              ))}
            </section>
          ))}
      </div>
    </AppShell.Navbar>
  );
}

interface Count {
  readonly many: number;
  /** What is counted, in the plural. */
  readonly words: string;
  readonly isBad?: boolean;
}

/** False at first: what the page itself needs comes before the counts of the menu. */
function useSettled(): boolean {
  const [isSettled, setSettled] = useState(false);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(true), SETTLED_MS);
    return () => clearTimeout(timer);
  }, []);
  return isSettled;
}

/** What needs attention, by the path of its page. */
function useCounts(): Readonly<Record<string, Count>> {
  const found = useAttention(useSettled());
  return {
    "/servers": { many: found.down.length + found.logins.length, words: "need attention", isBad: true },
    "/pins": { many: found.pins.reduce((all, one) => all + one.waiting.length, 0), words: "changed" },
    "/keys": { many: found.keys.length, words: "expired or expiring" },
    "/approvals": { many: found.approvals.length, words: "pending" },
  };
}

interface MenuLinkProps {
  readonly place: Place;
  readonly isHere: boolean;
  readonly count: Count | undefined;
}

function MenuLink({ place, isHere, count }: MenuLinkProps) {
  const many = count?.many ?? 0;
  const shown = many >= MOST_PENDING ? `${MOST_PENDING}+` : String(many);
  return (
    <Link to={place.path} className={styles.place} aria-current={isHere ? "page" : undefined}>
      <place.icon size={17} stroke={1.7} aria-hidden />
      {place.title}
      {count && many > 0 ? (
        <span className={styles.count} data-bad={count.isBad} title={`${shown} ${count.words}`}>
          {shown}
          <VisuallyHidden> {count.words}</VisuallyHidden>
        </span>
      ) : null}
    </Link>
  );
}

function LiveBadge({ isLive }: { readonly isLive: boolean }) {
  const label = isLive ? "Live: changes appear at once" : "Reconnecting: this page may be out of date";
  return (
    <Tooltip label={label}>
      <Badge
        variant="dot"
        color={isLive ? "green" : "orange"}
        miw="max-content"
        aria-label={label}
        visibleFrom="xs"
      >
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

function Account() {
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
        <Menu.Item component={Link} to="/connections">
          My connections
        </Menu.Item>
        {me.by === "loopback" ? null : (
          <Menu.Item leftSection={<IconLogout size={16} />} onClick={() => void leave(queries)}>
            Log out
          </Menu.Item>
        )}
      </Menu.Dropdown>
    </Menu>
  );
}
