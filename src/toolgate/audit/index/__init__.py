"""The audit index: a database that follows the log and answers queries."""
