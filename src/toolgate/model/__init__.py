"""The frozen values that all packages share, without behaviour beyond their own invariants.

- records: `servers`, `tasks`, `principals`, `packages`, `chat`, and how the registry stores them
  (`revisions`)
- what servers offer: `tools`, with the snapshot that a node serves
- what happens: `invocations`, `approvals`, `reports`
- text at the edges: `names`, `json_text`, `http`, and the constants of MCP (`protocol`)

Field names of records are part of the wire and of stored data: they never change.
"""
