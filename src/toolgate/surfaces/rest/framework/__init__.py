"""What every REST endpoint shares.

- `routing`   the route table, and the one way of a request to its handler
- `request`   parameters, bodies, pages, and `RestCall`: a request that passed every check
- `response`  `ResponseShape`, the base of response bodies, and how they are sent
- `openapi`   the document of a table
- `streams`   responses that go on

Never imports a resource.
"""
