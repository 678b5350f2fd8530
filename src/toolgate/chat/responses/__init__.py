"""Conversations over the Responses API: their tools, their input, and the response as it grows."""
