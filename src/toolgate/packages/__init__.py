"""Packages: published bundles of a manifest and a server's files.

Archives are untrusted. `uploads` receives an archive in parts, `archive` reads it within limits, `manifest`
checks its manifest, and `artifacts` stores it under its hash, in a directory or a bucket (`objects`).
`connector` starts servers from the unpacked files. `govern` and the surfaces call these modules; the CLI also
packs directories with `archive`.

Never trusts a size, a name or a version before checking it. Never changes a published version.
"""
