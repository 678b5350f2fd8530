"""The gateway's REST API as commands see it (`rest`), and the listener that a browser login returns to.

Every failure leaves as a `CommandError`. The key goes to the configured address only; no redirect is
followed.
"""
