/** The differences from the pin by tool, and their approval. */
import { Alert, Badge, Button, Card, Checkbox, Group, Stack, Text } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import type { Shapes } from "@/api/client";
import { useMay } from "@/api/me";
import { LineDiff } from "@/parts/diff-view";
import { Empty, Loaded } from "@/parts/states";
import { Untrusted } from "@/parts/untrusted";
import { visibleText } from "@/parts/visible";
import { approve, type Difference, isApprovable, markOf, type Pin } from "./pin-draft";
import { differencesQuery } from "./queries";
import { WritePin } from "./write-pin";

interface DifferencesProps {
  readonly pin: Pin;
  readonly etag: string;
}

export function Differences({ pin, etag }: DifferencesProps) {
  const query = useQuery(differencesQuery(pin.server_id));
  return (
    <Loaded query={query} what="Comparing the definitions">
      {(all) =>
        all.length === 0 ? (
          <Empty title="Nothing to review">All tools of this server match their approved definitions.</Empty>
        ) : (
          <Choice pin={pin} etag={etag} all={all} />
        )
      }
    </Loaded>
  );
}

function Choice({ pin, etag, all }: DifferencesProps & { readonly all: readonly Difference[] }) {
  const mayApprove = useMay("admin");
  const [marks, setMarks] = useState<ReadonlySet<string>>(new Set());
  // With the ETag of the pin it is based on: approvals of others must not be lost.
  const [asked, setAsked] = useState<{ body: Shapes["PinSent"]; etag: string } | null>(null);
  const open = all.filter(isApprovable);
  const chosen = open.filter((one) => marks.has(markOf(one)));
  const turn = (one: Difference) => {
    const next = new Set(marks);
    if (!next.delete(markOf(one))) next.add(markOf(one));
    setMarks(next);
  };
  return (
    <Stack>
      {mayApprove ? (
        <Group>
          <Button
            disabled={chosen.length === 0}
            onClick={() => setAsked({ body: approve(pin, chosen), etag })}
          >
            Review and approve {chosen.length === 0 ? "" : chosen.length} selected
          </Button>
          <Button
            variant="default"
            disabled={open.length === 0}
            onClick={() => setAsked({ body: approve(pin, open), etag })}
          >
            Review and approve all {open.length}
          </Button>
        </Group>
      ) : (
        <Text c="dimmed">Approving requires the role admin.</Text>
      )}
      {all.map((one) => (
        <OneDifference
          key={one.tool}
          serverId={pin.server_id}
          one={one}
          isChosen={marks.has(markOf(one))}
          onTurn={mayApprove && isApprovable(one) ? () => turn(one) : undefined}
        />
      ))}
      {asked === null ? null : (
        <WritePin title="Approve" serverId={pin.server_id} {...asked} onClose={() => setAsked(null)} />
      )}
    </Stack>
  );
}

const SAID: Readonly<Record<Difference["state"], { word: string; colour: string; about: string }>> = {
  changed: { word: "changed", colour: "orange", about: "The definition changed since approval." },
  new: { word: "new", colour: "blue", about: "No tool of this name was approved." },
  renamed: { word: "renamed", colour: "grape", about: "The tool was approved under another name" },
  missing: {
    word: "missing",
    colour: "gray",
    about: "The tool was approved, but the server no longer lists it.",
  },
};

interface OneProps {
  readonly serverId: string;
  readonly one: Difference;
  readonly isChosen: boolean;
  readonly onTurn?: () => void;
}

function OneDifference({ serverId, one, isChosen, onTurn }: OneProps) {
  const { word, colour, about } = SAID[one.state];
  return (
    <Card withBorder component="article" aria-label={`${word} tool ${visibleText(one.tool)}`}>
      <Stack gap="xs">
        <Group gap="sm" wrap="nowrap">
          {onTurn ? (
            <Checkbox checked={isChosen} onChange={onTurn} aria-label={`Approve ${visibleText(one.tool)}`} />
          ) : null}
          <Text fw={600}>
            <Untrusted text={one.tool} mono />
          </Text>
          <Badge color={colour} variant="light" tt="none">
            {word}
          </Badge>
        </Group>
        <Text size="sm" c="dimmed" component="div">
          {about}
          {one.was === null ? null : (
            <>
              : <Untrusted text={one.was} mono />
            </>
          )}
        </Text>
        {one.state === "changed" && one.listed === one.approved ? (
          <Alert color="yellow">
            The definition has changed back. The tool stays quarantined; below is what it once was.
          </Alert>
        ) : null}
        {one.state === "changed" && one.listed === null ? (
          <Alert color="yellow">The server does not list the tool now, so there is nothing to approve.</Alert>
        ) : null}
        <Lines serverId={serverId} one={one} />
      </Stack>
    </Card>
  );
}

function Lines({ serverId, one }: { readonly serverId: string; readonly one: Difference }) {
  const isLeftOut = one.diff.length === 0 && one.found !== null;
  const [isAsked, setAsked] = useState(false);
  const alone = useQuery({ ...differencesQuery(serverId, one.tool), enabled: isAsked && isLeftOut });
  const lines = isLeftOut ? alone.data?.[0]?.diff : one.diff;
  if (lines === undefined && !isAsked)
    return (
      <Button size="xs" variant="default" onClick={() => setAsked(true)}>
        Show diff
      </Button>
    );
  if (lines === undefined) return <Loaded query={alone}>{() => null}</Loaded>;
  if (lines.length === 0) return <Text size="sm">The definition is not stored here.</Text>;
  return (
    <>
      {one.is_whole ? <Text size="sm">The whole definition:</Text> : null}
      <LineDiff lines={lines} />
    </>
  );
}
