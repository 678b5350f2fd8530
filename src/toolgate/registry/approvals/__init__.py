"""Approvals of tool calls: requested by nodes, decided by approvers, used once.

- `contract.py`  `ApprovalService`, which nodes use, and the pure rules of an approval's state
- `sql.py`       `Approvals`, all of them in a table

The gateway requests through `ApprovalService`, locally or from the control plane; `govern` lists and decides.
Never sends a
call, and never grants one approval twice.
"""
