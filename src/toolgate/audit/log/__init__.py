"""The audit log: hash-chained lines in files, the truth about what happened.

- `writer`       `AuditLog` numbers events, `JsonLinesSink` writes them in sealed batches
- `write_ahead`  lines are safe from the end of the process before a call is sent
- `files`        events and seals as lines, rotation, and reading by number
- `journal`      the log of one process, its recovery after a crash, and its delivery to followers
- `verify`       finds what was changed, removed or reordered

`AuditLog` runs on the event loop and never waits; all reading blocks, and runs in threads.
"""
