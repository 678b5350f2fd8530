"""Checks what servers offer and encodes it for one caller. Pure.

- `definitions`, `listings`, `checks`  each tool, prompt, resource and template checked alone, or quarantined
- `naming`    joined names at the endpoints, names for models, aliases for native names
- `encoding`  lists, results and instructions for clients of each protocol revision
- `rows`      the catalog of packages and their tools
- `word_search`, `find_tools`  tool search by words, and the three tools that replace a list
- `skills`, `clients`  manifests of skills, entries for client programs

The pool calls it with the lists of servers, the gateway with the lists for callers. It never judges a
definition by its text, and never drops data that a client could use.
"""
