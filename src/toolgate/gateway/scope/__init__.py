"""The scope of one caller, composed by policy and compiled into a view.

A `Caller` is a principal with the scope it requests. Policy composes its `Scope`. A `View` is the scope ready
to serve: a `Route` for each name, and lists that are encoded once. The facade caches views until the snapshot
changes.

- `caller`  the caller of a request; its scope, single decisions, explanations
- `routes`  routes from names and URIs to tools, prompts and resources
- `view`  the compiled scope, and the cache of views
- `scope_audit`, `token_counts`  audit what callers were offered; count what it cost in tokens

Listed or found ⇔ callable, because both read one table. A tool that a caller may not see looks like one that
does not exist.
"""
