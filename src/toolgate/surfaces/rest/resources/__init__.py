"""The endpoints of the control plane: one module per resource, with its handlers and its wire shapes.

Handlers get a `Control` and return a body, or a `RestResponse` to set status, ETag or headers. Kinds of
records share the endpoints of `RecordCollection`. Every write goes through `govern`, which decides and audits
it.
"""
