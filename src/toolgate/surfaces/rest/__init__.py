"""The REST API: read, explain and govern.

An endpoint is a row of a table: method, path, role, summary, shape, handler. `framework` checks every request
against its row, calls the handler and sends its result. It also builds the OpenAPI document from the rows.
`data_plane` has the endpoints of every process, `resources` those of the control plane, `app` all of them.

`app` mounts `RestApi` on the listener. Handlers make one call into `gateway` or `govern`: nothing is decided
here.
"""
