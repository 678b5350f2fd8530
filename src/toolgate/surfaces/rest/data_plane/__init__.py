"""The endpoints of every process that serves, nodes included: health, scopes, client setup, one tool call"""
