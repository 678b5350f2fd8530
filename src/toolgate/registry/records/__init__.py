"""What a record is: its body as people write it, the rules of its fields, and what a transaction does to
records.

- `body.py`           the base of bodies, and how problems are reported
- `fields.py`         types of text, each with its rule
- `server_bodies.py`, `policy_bodies.py`  the bodies of each kind
- `codec.py`          `parse_record` and `encode_record`, and differences between bodies
- `transaction.py`    `plan_transaction`: writes in, changes out

Files, REST and the store parse through here. Never opens anything, and never shows a secret in a message.
"""
