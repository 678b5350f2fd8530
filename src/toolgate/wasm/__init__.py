"""The runtime of WASM guests: compiled modules, worker slots, limits, memory, and WASI.

A node checks and compiles a module once, in a confined child process (`compiling.py`, `compiler.py`), and
caches the result on disk (`module_cache.py`). `Slots` gives a run a thread with its engine. The guest calls
host functions through one trampoline (`guest.py`), which turns every failure into an error number. `run.py`
moves work between threads and the event loop. `GuestRun` decides once what ended a run.

`surfaces.wasm` calls this package and adds the functions for MCP and chats; `govern` checks uploads with it.
It knows wasmtime, but not MCP. Never lets an exception pass through wasmtime, and never gives a guest files
or sockets.
"""
