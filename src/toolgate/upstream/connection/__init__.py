"""The contract between the pool and its transports, and what every transport needs to keep it.

JSON-RPC, negotiation, relay, subscriptions.
"""
