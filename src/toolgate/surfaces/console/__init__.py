"""The web console, as files: built from the repository's `console` directory, and the same for everybody.

What it shows it asks the REST API for, with the credential of whoever looks. Here is nothing to protect, and
nothing is read but the path: no credential, no query, no body.
"""
