"""The revisioned store.

Its contract, its watch, the engines behind it, exports and imports of a whole registry.
"""
