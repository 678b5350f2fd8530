"""The doors: parse, one call into the gateway or the registry, encode."""
