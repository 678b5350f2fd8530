"""The revisioned store of everything governed, on SQLite or PostgreSQL.

- `sql_store.py`    `Store`: commit, list, watch, history, compaction
- `watch.py`        the hub that hands committed batches to watchers
- `side_tables.py`  reports, pinned definitions, ended sessions and the catalog, next to the records
- `engines.py`, `postgresql.py`  open a store; export and import a registry
- `export.py`       the file format of an export
- `contract.py`     limits, and what code without SQL needs

Only `govern` writes records. Never shows a transaction in part, and never acknowledges a write that is not
durable.
"""
