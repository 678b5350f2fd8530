"""Everything an operator can set."""
