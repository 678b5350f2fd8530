"""What servers offer, checked and encoded for one caller. Pure.

- `definitions`, `listings`, `checks`  each tool, prompt, resource and template checked alone, or quarantined
- `naming`    joined names at the endpoints, names for models, aliases for native names
- `encoding`  lists, results and instructions as clients of each protocol revision take them
- `rows`      the catalog of packages and their tools
- `word_search`, `find_tools`  tool search by words, and the three tools that replace a list
- `skills`, `clients`  manifests of skills, entries for client programs

The pool calls it with what servers list, the gateway with what callers get. It never judges a definition by
what its text says, and never drops data that a client could use.
"""
