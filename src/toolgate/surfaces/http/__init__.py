"""The HTTP/1.1 listener all doors stand behind: our own, because it is the hot path.

ASGI on a general server costs more than everything the gateway does with a call. A door is a coroutine
function of a `HttpRequest` and a `Responder`; an ASGI application is put behind `AsgiDoor`.
"""
