/** The pages: what the menu shows, and to which role. */
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
  IconServer,
  IconStack2,
  IconToggleRight,
  IconTopologyStar3,
} from "@tabler/icons-react";
import type { ComponentType } from "react";
import type { Role } from "./api/me";

export interface Place {
  readonly path: string;
  readonly title: string;
  readonly icon: ComponentType<{ size?: number; stroke?: number }>;
  readonly role: Role;
}

export const PLACES: readonly Place[] = [
  { path: "/", title: "Overview", icon: IconGauge, role: "viewer" },
  { path: "/servers", title: "Servers", icon: IconServer, role: "viewer" },
  { path: "/tasks", title: "Tasks", icon: IconStack2, role: "viewer" },
  { path: "/profiles", title: "Profiles", icon: IconTopologyStar3, role: "viewer" },
  { path: "/scope", title: "Scope lens", icon: IconFocus2, role: "agent" },
  { path: "/catalog", title: "Catalog", icon: IconBook2, role: "agent" },
  { path: "/integrations", title: "Integrations", icon: IconToggleRight, role: "agent" },
  { path: "/approvals", title: "Approvals", icon: IconChecklist, role: "viewer" },
  { path: "/pins", title: "Pins", icon: IconPinned, role: "viewer" },
  { path: "/activity", title: "Activity", icon: IconActivity, role: "viewer" },
  { path: "/unused", title: "Unused grants", icon: IconFilterMinus, role: "viewer" },
  { path: "/runs", title: "WASM tasks", icon: IconPlayerPlay, role: "agent" },
  { path: "/models", title: "Chat upstreams", icon: IconMessageChatbot, role: "viewer" },
  { path: "/keys", title: "Keys", icon: IconKey, role: "viewer" },
];
