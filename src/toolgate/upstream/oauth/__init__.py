"""Tokens for servers that want OAuth 2.1: found, asked for, kept and renewed by the gateway as their client.

Nothing here is done for a server whose record has no `oauth`, and a caller's own token is never used.
"""
