"""Authentication: turns a credential into a principal, or rejects the request.

Surfaces pass the `Authorization` header to `Identities`. It looks up keys by their hashes; an `OidcVerifier`
verifies tokens. A stream or session that outlives its request holds its credential, and ends when the
credential lapses.

- `identity`  keys, tokens, roles, credential expiry; counts, audits and rate-limits invalid credentials
- `oidc`  verifies an issuer's tokens (loaded only if one is configured)
- `issuer`  the issuer's metadata, the gateway's resource metadata, browser logins
- `signing`  signs state that clients keep for the gateway between two requests

Never logs, stores or forwards a credential. Never decides what a principal may do: `scope` does.
"""
