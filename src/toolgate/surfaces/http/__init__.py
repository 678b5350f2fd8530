"""The HTTP/1.1 listener behind which all HTTP endpoints are: our own, because it is the hot path (ADR 10).

`HttpServer` accepts, `HttpServerConnection` parses, `OriginGuard` rejects foreign pages, and an
`HttpHandler`, a coroutine function of an `HttpRequest` and a `Responder`, serves. Endpoints share `parsing`.

Never knows a route, a credential or a policy: those are the endpoints'.
"""
