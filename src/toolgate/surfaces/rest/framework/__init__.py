"""What every REST endpoint shares.

- `routing`   the route table, and the path of every request to its handler
- `request`   parameters, bodies, pages, and `RestCall`: a request that passed every check
- `response`  `ResponseShape`, the base of response bodies, and how they are sent
- `openapi`   the OpenAPI document of a route table
- `streams`   server-sent events

Never imports a resource.
"""
