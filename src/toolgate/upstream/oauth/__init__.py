"""Tokens for servers that require OAuth 2.1, with the gateway as their client.

`Authorizer` requests and renews tokens; `OAuthConnector` opens connections with them; `Logins` runs the
logins of people, whose grants `GrantFiles` stores. `authority.py` has the requests to authorization servers.

Does nothing for a server whose record has no `oauth`, and never uses a caller's own token.
"""
