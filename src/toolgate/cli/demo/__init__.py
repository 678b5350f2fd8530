"""`toolgate up --demo`: real servers, three tasks and, on request, a small model.

The demo prepares a directory, starts the gateway on it like any other, and then acts as a client. Everything
that it makes is in that directory; everything that it starts ends with the gateway.
"""
