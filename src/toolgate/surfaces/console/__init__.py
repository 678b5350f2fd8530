"""The web console, as files: built from the repository's `console` directory, and the same for every caller.

The console requests what it shows from the REST API, with the credential of its user. There is nothing to
protect here, and nothing is read but the path: no credential, no query, no body.
"""
