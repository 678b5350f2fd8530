"""Changes of records: the only way in which REST, gRPC and the command line write to the registry.

A surface passes `PendingChange` values to `commit_changes`. They become `RecordEdit` values with the record
before and after, and pass the checks in order. They are committed as one transaction at the checked revision,
or not at all. `plan_changes` does the same without the commit, and returns the impact on every task.

- `permissions.py`  who may write what: roles, ceilings, quotas
- `records.py`      renders stored records, and parses sent ones
- `impact.py`       the predicted snapshot, warnings and plans
- `commit.py`       checks, commits and audits changes
- `history.py`      earlier revisions, diffs, rollbacks

Never writes without an audit record. Never reveals a record beyond the ceiling of a key to it.
"""
