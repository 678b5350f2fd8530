/** A copy button, and a text block with one. */
import { ActionIcon, Box, CopyButton, Tooltip } from "@mantine/core";
import { IconCheck, IconCopy } from "@tabler/icons-react";
import { Untrusted } from "./untrusted";

export function Copy({ text, label = "Copy" }: { readonly text: string; readonly label?: string }) {
  return (
    <CopyButton value={text}>
      {({ copied, copy }) => (
        <Tooltip label={copied ? "Copied" : label}>
          <ActionIcon variant="subtle" color="gray" onClick={copy} aria-label={copied ? "Copied" : label}>
            {copied ? <IconCheck size={16} /> : <IconCopy size={16} />}
          </ActionIcon>
        </Tooltip>
      )}
    </CopyButton>
  );
}

interface CodeBlockProps {
  readonly text: string;
  readonly label: string;
  /** Whether long lines are scrolled to, not broken. */
  readonly hasWholeLines?: boolean;
  /** Whether all of a long text is shown, not a part that is scrolled. */
  readonly isWhole?: boolean;
}

/** A block of text as a terminal or an editor would have it. */
export function CodeBlock({ text, label, hasWholeLines = false, isWhole = false }: CodeBlockProps) {
  return (
    <Box pos="relative" bg="var(--mantine-color-default-hover)" p="sm" style={{ borderRadius: 6 }}>
      <Box pos="absolute" top={6} right={6} bg="var(--mantine-color-default-hover)">
        <Copy text={text} label={`Copy ${label}`} />
      </Box>
      {/* Not a section: the texts of a page are no landmarks. */}
      {/* biome-ignore lint/a11y/useSemanticElements: a fieldset is for inputs */}
      <div
        role="group"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls is reached by keyboard
        tabIndex={0}
        aria-label={label}
        className={hasWholeLines ? "whole-lines" : undefined}
        style={{ overflow: "auto", maxHeight: isWhole ? undefined : 420, paddingRight: 36 }}
      >
        <Untrusted text={text} mono />
      </div>
    </Box>
  );
}
