"""Quotas: what keys and tasks use over time, leased to nodes in small grants.

- `sql.py`  `QuotaLedger`, all counts in a table

Nodes use it as a `QuotaSource` (`store.contract`). The rules of a grant are pure and in `policy.admission`.
Never grants more than the limit, however many nodes there are.
"""
