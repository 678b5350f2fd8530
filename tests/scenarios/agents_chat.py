"""openai-agents at the chat door: an agent with one function of its own; prints what it answers as JSON.

Run by its path: importing the package takes seconds, which only this scenario should pay for.
"""

import asyncio
import json
import sys

from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

asked: list[str] = []


@function_tool
def look_up(whom: str) -> str:
    """Say where someone is."""
    asked.append(whom)
    return f"{whom} is in London"


async def main(url: str, model: str, question: str) -> None:
    set_tracing_disabled(True)
    async with AsyncOpenAI(
        base_url=url, api_key="none", http_client=DefaultAsyncHttpxClient(trust_env=False)
    ) as client:
        agent = Agent(
            name="Clerk", model=OpenAIChatCompletionsModel(model=model, openai_client=client), tools=[look_up]
        )
        whole = await Runner.run(agent, question)
        streamed = Runner.run_streamed(agent, question)
        async for _ in streamed.stream_events():
            pass
    sys.stdout.write(json.dumps({"answers": [whole.final_output, streamed.final_output], "asked": asked}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
