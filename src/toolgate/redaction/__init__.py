"""Keeps secrets out of everything that is shown, logged and audited.

A secret is recognised by its shape (`ghp_…`), by its name (`api_key`), by its place (a URL's password, a
command's `-p`), by its letters (random ones), or because a server was started with it.

- `shapes`        the shapes as data, the one mask, the prefilter generated from them, and `redact_text`
- `random_words`  random words, such as keys and tokens
- `records`       registry records for display, and masks that come back in a change
- `arguments`     `Redaction`: the arguments of calls, for the audit log and for approvers
- `credentials`   `CredentialMask`: the credentials that a server was started with, kept out of what it sends

The registry, the gateway, `govern` and the surfaces call it before they show, log or record. Pure: it never
resolves a reference, reads a secret or writes anything.
"""
