"""The SQL under the store: tables, the statements of transactions, and the engines that run them.

- `tables.py`, `statements.py`  the same for every engine
- `transactions.py`  runs transactions on threads, for the event loop
- `sqlite.py`, `postgresql.py`  the engines; PostgreSQL is loaded only when it is used

The store, the tables next to it and the audit index use it. It never decides what is written.
"""
