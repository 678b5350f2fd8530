"""Audit events and where they go."""
