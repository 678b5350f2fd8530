"""The composition root: builds everything, passes it on, owns the task groups.

One module for each kind of process (`up`, `control`, `node`), so that each imports only what it runs. Nothing
below this package knows the settings, the environment, or each other's construction.
"""
