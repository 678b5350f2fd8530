/** The pages: what the menu shows and to which role, and the guide of each. */
import {
  IconActivity,
  IconBook2,
  IconChecklist,
  IconFilterMinus,
  IconFocus2,
  IconGauge,
  IconKey,
  IconMessageChatbot,
  IconPinned,
  IconPlayerPlay,
  IconPlugConnected,
  IconServer,
  IconStack2,
  IconTerminal2,
  IconTopologyStar3,
} from "@tabler/icons-react";
import type { ComponentType } from "react";
import type { Role } from "./api/role";

export interface Place {
  readonly path: string;
  readonly title: string;
  readonly icon: ComponentType<{ size?: number; stroke?: number }>;
  readonly role: Role;
  /** Its guide, a path below `docs/` without `.md`, and maybe a heading. */
  readonly guide: string;
}

export interface PlaceGroup {
  /** Empty: the first group, which needs no name. */
  readonly title: string;
  readonly places: readonly Place[];
}

export const GROUPS: readonly PlaceGroup[] = [
  {
    title: "",
    places: [
      { path: "/", title: "Overview", icon: IconGauge, role: "viewer", guide: "how-to/console#overview" },
    ],
  },
  {
    title: "Tools",
    places: [
      { path: "/servers", title: "Servers", icon: IconServer, role: "viewer", guide: "how-to/servers" },
      { path: "/catalog", title: "Catalog", icon: IconBook2, role: "agent", guide: "how-to/catalog" },
      {
        path: "/playground",
        title: "Playground",
        icon: IconTerminal2,
        role: "agent",
        guide: "how-to/console#playground",
      },
      {
        path: "/pins",
        title: "Pins",
        icon: IconPinned,
        role: "viewer",
        guide: "explanation/policy#pins-only-as-approved",
      },
    ],
  },
  {
    title: "Access",
    places: [
      { path: "/tasks", title: "Tasks", icon: IconStack2, role: "viewer", guide: "explanation/policy" },
      {
        path: "/profiles",
        title: "Profiles",
        icon: IconTopologyStar3,
        role: "viewer",
        guide: "explanation/policy",
      },
      { path: "/keys", title: "Keys", icon: IconKey, role: "viewer", guide: "how-to/team-keys" },
      {
        path: "/connections",
        title: "My connections",
        icon: IconPlugConnected,
        role: "agent",
        guide: "how-to/clients",
      },
      { path: "/scope", title: "Scope lens", icon: IconFocus2, role: "agent", guide: "explanation/policy" },
    ],
  },
  {
    title: "Oversight",
    places: [
      {
        path: "/approvals",
        title: "Approvals",
        icon: IconChecklist,
        role: "viewer",
        guide: "how-to/approvals",
      },
      { path: "/activity", title: "Activity", icon: IconActivity, role: "viewer", guide: "how-to/audit" },
      {
        path: "/unused",
        title: "Unused grants",
        icon: IconFilterMinus,
        role: "viewer",
        guide: "how-to/least-privilege",
      },
    ],
  },
  {
    title: "Runtimes",
    places: [
      {
        path: "/models",
        title: "Chat upstreams",
        icon: IconMessageChatbot,
        role: "viewer",
        guide: "how-to/chat-upstreams",
      },
      { path: "/runs", title: "WASM tasks", icon: IconPlayerPlay, role: "agent", guide: "how-to/workloads" },
    ],
  },
];

export const PLACES: readonly Place[] = GROUPS.flatMap((group) => group.places);

/** The page in the menu that `pathname` is or is below. */
export function placeOf(pathname: string): Place | undefined {
  return PLACES.find(({ path }) =>
    path === "/" ? pathname === "/" : pathname === path || pathname.startsWith(`${path}/`),
  );
}
