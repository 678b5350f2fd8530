"""The REST API as commands see it, and the listener that a browser login comes back to."""
