"""Keeps secrets out of what is shown, logged and audited.

A secret is known by its shape (`ghp_…`), by its name (`api_key`), by its place (a URL's password, a command's
`-p`), by its letters (random ones), or because a server was started with it.

- `shapes`        the shapes as data, the one mask, the prefilter generated from them, and `redact_text`
- `random_words`  words that chance made, as keys and tokens are
- `records`       registry records as they may be shown, and masks that come back in a change
- `arguments`     `Redaction`: the arguments of calls, for the audit and for approvers
- `credentials`   `CredentialMask`: what one server was started with, kept out of what it sends

The registry, the gateway, `govern` and the surfaces call it before they show, log or record. Pure: it never
resolves a reference, reads a secret or writes anything.
"""
