"""The SQL under the store: tables, what one transaction does to them, and the engines that run it.

- `tables.py`, `rows.py`, `statements.py`  the same for every engine
- `transactions.py`  runs transactions on threads, for the event loop
- `sqlite.py`, `postgresql.py`  the engines; PostgreSQL is loaded for its users only
- `disk.py`          locked and durable files

The store and the tables next to it use it, and so does the audit index. Never decides what is written.
"""
