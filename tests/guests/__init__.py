"""The examples of guests and their header: built by a real compiler, run in real slots."""
