"""The HTTP/1.1 listener of all HTTP endpoints. It is Toolgate's own, because it is the hot path (ADR 10).

`HttpServer` accepts connections, `HttpServerConnection` parses requests, and `OriginGuard` rejects foreign
pages. An `HttpHandler`, a coroutine function, gets an `HttpRequest` and a `Responder`. Endpoints share
`parsing`.

Never knows a route, a credential or a policy: those belong to the endpoints.
"""
