"""The audit: a tamper-evident log of events, and an index that can be queried.

- `events`  the events: calls, denials, offered scopes, changes, invocations, approvals, sessions, processes
- `log`     hash-chained lines in files, with write-ahead, recovery, verification and followers
- `index`   a database that follows the log and answers queries
- `otlp`    the log for an OpenTelemetry collector

The gateway and `govern` record events; a call is recorded before it is sent. Only a full write-ahead file
blocks calls. No event contains a secret or a result.
"""
