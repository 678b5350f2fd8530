"""The composition root: builds everything, passes it on, owns the task group."""
