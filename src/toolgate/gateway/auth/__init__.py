"""Authentication: a credential becomes a principal, or the request ends here."""
