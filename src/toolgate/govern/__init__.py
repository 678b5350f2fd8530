"""The control plane: the operations on the registry that REST and gRPC offer.

Handlers on a control plane get a `Control`; handlers on a node get its base, a `GatewayProcess`. A surface
parses a request, calls one function here and encodes its result, so REST and gRPC behave alike.

- `process.py`, `control.py`     the services of handlers; readiness
- `operator_policy.py`           limits that the operator sets for every record
- `changes/`                     checks, plans, commits and history of records
- `pins.py`, `approvals.py`      tools that changed since approval; pending approvals of calls
- `packages.py`, `package_install.py`  uploads, installs and removes archives and modules
- `catalog_projection.py`, `catalog.py`, `visibility.py`  the catalog, as each caller may see it
- `least_privilege.py`                 least policies by the audit index, unused grants
- `integrations.py`, `invocations.py`, `watches.py`       callers' integrations, runs and watches

Never calls a tool, and never opens a connection to a server. Never imports a surface.
"""
