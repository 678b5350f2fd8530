"""The REST API: read, explain and govern.

An endpoint is a row of a table: method, path, role, summary, shape, handler. `framework` checks every request
against its row, calls the handler, and sends what it returns; the OpenAPI document is made from the same
rows. `data_plane` has the endpoints of every process and the table of nodes, `resources` those of the control
plane, and `app` the table of all.

`app` mounts `RestApi` on the listener. Handlers make one call into `gateway` or `govern`: nothing is decided
here.
"""
