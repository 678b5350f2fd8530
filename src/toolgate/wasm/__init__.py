"""What guests run in: compiled modules, worker slots, limits, memory, and the system calls of their own.

It knows wasmtime, and nothing of MCP or chats: those are functions that `surfaces/wasm` adds.
"""
