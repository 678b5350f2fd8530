"""The one pipeline of every call: authenticate, scope, admit, call, record."""
