"""Records: their bodies as people write them, the rules of fields, and the changes that a transaction makes.

- `body.py`           the base of bodies, and how problems are reported
- `fields.py`         types of text, each with its rule
- `server_bodies.py`, `policy_bodies.py`  the bodies of each kind
- `codec.py`          `parse_record` and `encode_record`, and differences between bodies
- `transaction.py`    `plan_transaction`: writes in, changes out

Files, REST and the store parse through this package. It opens nothing and never shows a secret in a message.
"""
