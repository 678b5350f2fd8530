"""The audit: what happened, in a log that shows tampering, and an index that can be queried.

- `events`  the events: calls, denials, offered scopes, changes, runs, approvals, sessions, processes
- `log`     hash-chained lines in files, written ahead, recovered after a crash, verified and followed
- `index`   a database that follows the log and answers queries
- `otlp`    the log for an OpenTelemetry collector

The gateway and `govern` record; a call is recorded before it is sent. Nothing here blocks a call but a full
write-ahead file. No event holds a secret, or a result.
"""
