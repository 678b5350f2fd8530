"""How the registry is governed: what may be written, by whom, what it would do, and what it was before."""
