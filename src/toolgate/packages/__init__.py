"""Packages: published bundles of a manifest and a server's files.

An archive comes from strangers. `uploads` takes it in parts, `archive` reads it within limits, `manifest`
checks what it says, and `artifacts` keeps it under its hash, in a directory or a bucket (`objects`).
`connector` starts servers from the unpacked files. `govern` and the surfaces call all of this; the CLI packs
directories with `archive`, too.

Never trusts a size, a name or a version before it was checked. Never changes what was published.
"""
