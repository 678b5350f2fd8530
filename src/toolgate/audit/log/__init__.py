"""The audit log: hash-chained lines in files, the truth about what happened.

- `writer`       `AuditLog` numbers events, `JsonLinesSink` writes them in sealed batches
- `write_ahead`  lines are safe from the end of the process before a call is sent
- `lines`        events and seals as lines
- `files`        rotation, and reading by number
- `journal`      `Journal` is the log of one process, with the recovery after a crash
- `follower`     delivers the log to the index, the control plane or a collector
- `verify`       finds what was changed, removed or reordered

`AuditLog` runs on the event loop and never waits; all reading blocks, and runs in threads.
"""
