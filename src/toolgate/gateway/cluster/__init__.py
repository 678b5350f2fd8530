"""The servers of this node and of others: what nodes report, staleness, drift."""
