"""What one caller sees: its scope compiled into a view of routes and encoded lists."""
