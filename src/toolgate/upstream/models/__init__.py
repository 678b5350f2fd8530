"""The servers of models: asking them, reading their streams, listing what they serve."""
