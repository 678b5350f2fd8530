"""A chat on the official `openai` client: the model behind the gateway uses MCP tools, this program has none.

    python examples/chat.py http://127.0.0.1:8080/t/chat/v1 smollm2-135m "What do my notes say about coffee?"

It prints each tool when its call has ended, and the answer as it comes. A key, where one is needed, is taken
from `TOOLGATE_KEY`.
"""

import os
import sys
from typing import Any

from openai import OpenAI
from openai.types.chat import ChatCompletionChunk

# Without it, a client sees nothing but the answer.
TELL_OF_TOOLS = {"toolgate": {"progress": True}}


def main(url: str, model: str, question: str) -> None:
    with OpenAI(base_url=url, api_key=os.environ.get("TOOLGATE_KEY", "none")) as client:
        chunks = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": question}],
            stream=True,
            extra_body=TELL_OF_TOOLS,
        )
        for chunk in chunks:
            sys.stdout.write(text_of(chunk))
            sys.stdout.flush()
    print()


def text_of(chunk: ChatCompletionChunk) -> str:
    """What to show of a chunk: a piece of the answer, or that a tool was called."""
    told: dict[str, Any] = (chunk.model_extra or {}).get("toolgate", {})
    if told.get("event") == "tool_finished":
        return f"[{told['tool']}: {'ok' if told['ok'] else 'failed'}]\n"
    return "".join(choice.delta.content or "" for choice in chunk.choices)


if __name__ == "__main__":
    main(*sys.argv[1:])
