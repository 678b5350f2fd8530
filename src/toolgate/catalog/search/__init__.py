"""Tool search by words.

- `index`       BM25 over the fields of tools, in memory, changed group by group; rank fusion with other
  searches
- `terms`       texts and identifiers as the terms that are compared, and their synonyms
- `find_tools`  the three tools that replace a list: search, describe, call

The gateway searches within the scope of a caller, the catalog within what it may see. Tools outside a search
never influence its results, not even their order.
"""
