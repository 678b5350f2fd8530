"""MCP servers that run as child processes of the node.

`StdioConnector` starts a child and negotiates. `Warden` (in `children.py`) starts children through a process
supervisor, the program in `warden.py`, which kills their whole process trees even if the node dies.
`pipes.py` reads and writes their pipes without blocking.

The node itself never forks a server, waits for one or signals one.
"""
