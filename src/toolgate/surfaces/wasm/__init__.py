"""Invocations of WASM tasks, and the hostcalls of their guests: MCP and chats.

`Invoker` claims invocations from the queue; `InvocationRun` runs one and reports on it under a lease. Its
guest runs in a slot of `toolgate.wasm` and calls the functions of `functions.py`: `cchat_*`
(`chat_calls.py`), `mcp_*` (`mcp_calls.py`), `spear_*` (`descriptors.py`) and WASI. Policy decides on each
hostcall for the invocation's caller: a descriptor grants nothing by itself.

Never imports wasmtime at start-up: `functions.py` is loaded with the first guest.
"""
