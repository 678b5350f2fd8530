"""The control plane: everything that REST and gRPC do with the registry.

`Control` is what a process that governs has; `GatewayProcess` is what every serving process has, nodes
included. Surfaces parse a request, call one function here, and encode what it returns, so REST and gRPC give
the same answers.

- `process.py`, `control.py`     what handlers get
- `operator_policy.py`           limits that the operator sets on every record
- `changes/`                     checks, plans, commits and history of records
- `pins.py`, `approvals.py`      tools that changed since approval; calls that wait for an approver
- `packages.py`, `package_install.py`  archives and modules taken in, installed and removed
- `catalog_projection.py`, `catalog.py`, `visibility.py`  the catalog, browsed by what each caller may see
- `audit.py`, `least_privilege.py`     queries of the audit; the least policy, and unused grants
- `integrations.py`, `invocations.py`, `watches.py`       what callers choose, run and wait for

Never calls a tool, and never opens a connection to a server. Never imports a surface.
"""
