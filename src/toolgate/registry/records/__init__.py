"""What a record is.

Its shapes as people write them, the fields' rules, parsing, encoding, and what a transaction does to
records.
"""
