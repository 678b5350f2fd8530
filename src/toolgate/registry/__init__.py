"""The registry: everything governed, its history and its watch, and how it is stored, followed, imported and
exported.

From top to bottom:

- `replication`  how a node follows the control plane
- `interchange`  server definitions of other programs, in and out
- `files`        a directory of server files, applied to the store
- `store`        the revisioned store on SQLite or PostgreSQL
- `approvals`, `invocations`, `quotas`  what is stored next to the records and has its own rules
- `database`     tables, statements and transactions
- `records`      what a record is: bodies, fields, parsing, and transactions over records

`govern` writes it, `gateway` serves what it says. Never calls a server, and never decides whether a caller
may do something.
"""
