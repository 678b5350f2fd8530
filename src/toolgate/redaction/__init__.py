"""Secrets kept out of what is shown, logged and audited.

Their shapes and names as data, one mask, and the functions that apply it.
"""
