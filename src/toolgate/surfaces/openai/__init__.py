"""The chat endpoint: `/v1/chat/completions`, `/v1/responses` and `/v1/models`, for OpenAI's clients.

`ChatEndpoint` authenticates a request, makes its `ChatExchange` and calls the handler of its resource. A
handler parses the body and resolves the scope. Then it forwards the request unchanged (`passthrough.py`), or
subclasses a session of `gateway.chat` that prompts the model and runs tools (`completions.py`,
`responses.py`). `exchange.py` also converts errors and writes event streams.

Never decides what a caller may use, and never stores a conversation: state that must survive a request is
sealed into ids.
"""
