"""Tool search by words and by meaning."""
