"""The REST API: read, explain and govern."""
