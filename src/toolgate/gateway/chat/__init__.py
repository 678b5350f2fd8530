"""Chats whose tools the gateway runs: scope, tool loop, model requests."""
