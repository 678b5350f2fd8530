"""All servers of a node behind one call.

Supervision, admission, discovery, and the definitions kept from earlier runs.
"""
