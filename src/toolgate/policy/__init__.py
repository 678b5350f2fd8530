"""Pure rules: layers in, one compiled scope with its reasons out."""
