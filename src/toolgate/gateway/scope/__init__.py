"""What one caller sees: a scope composed by policy, compiled into a view.

A `Caller` is a principal with the scope it requests. Policy composes its `Scope`, and a `View`
makes that ready to serve: a `Route` for each name, and lists as bytes that are encoded once. The facade
caches views until the snapshot changes.

- `caller`  who sends a request, and for what; its scope, single decisions, explanations
- `routes`  names and URIs to what servers have
- `view`  the compiled scope, and the cache of views
- `scope_audit`, `token_counts`  what callers were offered, and what it cost

Listed or found ⇔ callable, since one table answers both. What a caller may not see looks like what does not
exist.
"""
