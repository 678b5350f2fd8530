"""The endpoints of the control plane: one module a resource, its handlers and its wire shapes together.

Handlers get a `Control` and return a body, or a `RestResponse` where status, ETag or headers matter. Kinds of
records share the endpoints of `RecordCollection`. Every write goes through `govern`, which decides and audits
it.
"""
