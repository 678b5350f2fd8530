"""The audit index: events of logs in a database, for queries.

- `index`       `AuditIndex` inserts batches and runs queries in threads, on a SQLite file or PostgreSQL
- `tables`      the tables and their migrations, filters and indexed events
- `statements`  inserts, pages, token sums and uses of tools
- `activity`    calls counted by time, server, tool, denial, caller and version

It follows the log and is rebuilt from it. No call waits for it.
"""
