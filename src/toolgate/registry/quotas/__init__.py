"""Quotas: what keys and tasks use over time, leased to nodes in small grants.

- `contract.py`  `QuotaSource`, which nodes use
- `sql.py`       `QuotaLedger`, all counts in a table

The rules of a grant are pure and in `policy.admission`. Never grants more than the limit, however many nodes
there are.
"""
