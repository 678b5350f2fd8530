"""The runtime of WASM guests: compiled modules, worker slots, limits, memory, and WASI.

A node checks and compiles a module once, in a confined child process (`compiling.py`, `compiler.py`), and
keeps the result on disk (`module_cache.py`). `Slots` gives a run a thread with an engine of its own; the
guest calls functions of the host through one trampoline (`guest.py`), which turns whatever fails into an
error number. Work on the event loop crosses threads in `run.py`. `GuestRun` decides once what ended a run.

Called by `surfaces.wasm`, which adds the functions for MCP and chats, and by `govern`, which checks uploads.
Knows wasmtime, and nothing of MCP. Never lets an exception pass through wasmtime, and never gives a guest
files or sockets.
"""
