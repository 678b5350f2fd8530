"""The registry stores all governed records with history and watch. Nodes follow it; files feed it.

From top to bottom:

- `replication`  how a node follows the control plane
- `interchange`  imports and exports server definitions of other programs
- `files`        a directory of server files, applied to the store
- `store`        the revisioned store on SQLite or PostgreSQL
- `approvals`, `invocations`  tables next to the records, with their own rules
- `database`     tables, statements and transactions
- `records`      record bodies, fields, parsing, and transactions over records

`govern` writes the registry, `gateway` serves it. It never calls a server and never decides whether a caller
may do something.
"""
