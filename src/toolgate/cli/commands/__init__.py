"""The commands of `toolgate`, one module a noun.

Each module has an `app` with its commands, which `cli.root` loads when one of them is used. A command is a
client of the REST API like any other; only `up`, `control` and `node` build a process. None decides policy.
"""
