"""Authentication: a credential becomes a principal, or the request ends here.

Surfaces pass the `Authorization` header to `Identities`, which knows keys by their hashes and has tokens
verified by an `OidcVerifier`. What outlives its request holds its credential and ends when that lapses.

- `identity`  keys, tokens, roles, credential expiry; wrong credentials are counted, audited and slowed down
- `oidc`  verifies an issuer's tokens (loaded only if one is configured)
- `issuer`  the issuer's metadata, ours for clients, logins with a browser
- `signing`  what clients keep for us between two requests

Never logs, stores or forwards a credential. Never decides what a principal may do: that is `scope`.
"""
