"""Tool search by words.

BM25 over weighted fields, its terms and synonyms, and the three tools of find mode.
"""
