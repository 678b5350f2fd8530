"""The gateway: every list and every call of every surface goes through here.

`gateway.py` is the facade that surfaces use. It holds the snapshot, compiles a view for each caller, and
sends requests through one pipeline. The sub-packages form layers, top to bottom:

- `chat`  chats whose tools the gateway runs; uses the facade like a surface
- `gateway.py`  the facade
- `subscriptions`, `search`  who is notified of changes; the find tools
- `call`  quota, approval, audit, send
- `scope`  what one caller sees
- `auth`, `cluster`  who calls; which servers there are

Nothing else talks to servers on behalf of a caller, and nothing is sent before its audit record is written.
"""
