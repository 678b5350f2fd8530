"""The composition roots: build all services, connect them, and own the task groups.

One module for each kind of process (`up`, `control`, `node`), so that each imports only what it runs. No
package below this one reads the settings or the environment, or builds another package's services.
"""
