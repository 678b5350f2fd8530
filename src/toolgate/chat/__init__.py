"""Pure: conversations with models that call tools. What to ask, what to run, and when to stop."""
