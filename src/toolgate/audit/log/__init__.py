"""The audit log: hash-chained lines in files, the authoritative record of events.

- `writer`       `AuditLog` numbers events, `JsonLinesSink` writes them in sealed batches
- `write_ahead`  keeps lines even if the process is killed, before a call is sent
- `files`        events and seals as lines, rotation, and reading by number
- `journal`      the log of one process, its recovery after a crash, and its delivery to followers
- `verify`       finds changed, removed and reordered lines

`AuditLog` runs on the event loop and never waits. All reading blocks, and runs in threads.
"""
