"""Who is notified when a list or a resource changes."""
