/** Ctrl-K: every page, record and action by a few letters of its name. */
import { Modal, Text, UnstyledButton } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useId, useMemo, useRef, useState } from "react";
import { useNavigate } from "react-router";
import { reaches, useMe } from "./api/me";
import { keysQuery, profilesQuery, serversQuery, tasksQuery } from "./api/records";
import styles from "./palette.module.css";
import { actions, type Entry, matching, pages, recordEntries } from "./palette-entries";
import { visibleText } from "./parts/visible";

/** More than this is not looked through by eye. */
const MOST = 40;

/** Everything that the caller may open. Records appear once they are loaded; most are already. */
function useEntries(): readonly Entry[] {
  const { role } = useMe();
  const enabled = reaches(role, "viewer");
  const servers = useQuery({ ...serversQuery, enabled }).data;
  const tasks = useQuery({ ...tasksQuery, enabled }).data;
  const profiles = useQuery({ ...profilesQuery, enabled }).data;
  const keys = useQuery({ ...keysQuery, enabled }).data;
  return useMemo(
    () => [
      ...pages(role),
      ...actions(role),
      ...recordEntries(
        "Server",
        "/servers",
        servers?.map((one) => [one.server_id, one.display_name ?? ""]),
      ),
      ...recordEntries(
        "Task",
        "/tasks",
        tasks?.map((one) => [one.task_id, one.display_name ?? ""]),
      ),
      ...recordEntries(
        "Profile",
        "/profiles",
        profiles?.map((one) => [one.profile_id, ""]),
      ),
      ...recordEntries(
        "Key",
        "/keys",
        keys?.map((one) => [one.key_id, ""]),
      ),
    ],
    [role, servers, tasks, profiles, keys],
  );
}

export default function Palette({ onClose }: { readonly onClose: () => void }) {
  const [text, setText] = useState("");
  const [place, setPlace] = useState(0);
  const entries = useEntries();
  const isAgent = !reaches(useMe().role, "viewer");
  const found = useMemo(() => matching(entries, text, isAgent).slice(0, MOST), [entries, text, isAgent]);
  const navigate = useNavigate();
  const list = useId();
  const open = (entry: Entry | undefined) => {
    if (entry === undefined) return;
    onClose();
    void navigate(entry.path);
  };
  const onKey = (event: React.KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined) {
      event.preventDefault();
      setPlace((place + step + found.length) % Math.max(1, found.length));
    } else if (event.key === "Enter") open(found[place]);
  };
  return (
    <Modal
      opened
      onClose={onClose}
      withCloseButton={false}
      padding={0}
      size="lg"
      yOffset="12vh"
      title={null}
      aria-label="Search"
    >
      <input
        className={styles.input}
        data-autofocus
        role="combobox"
        aria-label="Search or run a command"
        aria-expanded
        aria-controls={list}
        aria-activedescendant={found[place] ? `${list}-${place}` : undefined}
        placeholder="A page, a server, a task, a tool, an action …"
        value={text}
        onChange={(event) => {
          setText(event.currentTarget.value);
          setPlace(0);
        }}
        onKeyDown={onKey}
        spellCheck={false}
      />
      <div id={list} role="listbox" aria-label="Results" className={styles.list}>
        {found.map((entry, at) => (
          <Line
            key={`${entry.kind} ${entry.path}`}
            id={`${list}-${at}`}
            entry={entry}
            isHere={at === place}
            onOpen={() => open(entry)}
          />
        ))}
      </div>
      <Text size="xs" c="dimmed" p="xs" px="md" role="status">
        {found.length === 0 ? "Nothing matches." : "↑ ↓ to choose, Enter to open, Esc to close"}
      </Text>
    </Modal>
  );
}

interface LineProps {
  readonly id: string;
  readonly entry: Entry;
  readonly isHere: boolean;
  readonly onOpen: () => void;
}

function Line({ id, entry, isHere, onOpen }: LineProps) {
  const line = useRef<HTMLButtonElement>(null);
  useEffect(() => {
    if (isHere) line.current?.scrollIntoView({ block: "nearest" });
  }, [isHere]);
  return (
    <UnstyledButton
      ref={line}
      id={id}
      role="option"
      aria-selected={isHere}
      tabIndex={-1}
      className={styles.line}
      onClick={onOpen}
    >
      <span className={styles.kind}>{entry.kind}</span>
      <span className={styles.title}>{visibleText(entry.title)}</span>
      {entry.about ? <span className={styles.about}>{visibleText(entry.about)}</span> : null}
    </UnstyledButton>
  );
}
