"""How records change: the one way in which REST, gRPC and the command line write to the registry.

A surface hands `PendingChange` values to `commit_changes`. They become `RecordEdit` values with the record
before and after, pass the checks in order, and are committed as one transaction at the revision that was
checked, or not at all. `plan_changes` does the same up to the commit, and shows the impact on every task.

- `permissions.py`  who may write what: roles, ceilings, quotas
- `records.py`      records as they are shown, and sent ones parsed
- `checks.py`       the checks of every change, as flat lists
- `impact.py`       the predicted snapshot, warnings and plans
- `commit.py`       check in order, commit, audit
- `history.py`      earlier revisions, diffs, rollbacks

Never writes without an audit record. Never tells a bound key about a record beyond its ceiling.
"""
